"""Other programs' files, read into this package's own terms."""

"""An estimate as people read it: text, HTML, SVG and MathML, alike at build and in the page."""

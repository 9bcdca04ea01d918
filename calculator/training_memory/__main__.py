"""``python3 -m training_memory``: the command line, without installing anything."""

from __future__ import annotations

from .cli import main

raise SystemExit(main())

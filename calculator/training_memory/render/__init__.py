"""An estimate as people read it: text, HTML, SVG and MathML, alike at build time and in the page."""

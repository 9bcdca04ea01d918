// @ts-check
/**
 * The calculator in a file of its own: what the theme's script does for a page of the site, as far as
 * the calculator needs it.
 */

import "./calculator.js";

const dark = matchMedia("(prefers-color-scheme: dark)");

function choose() {
  document.body.setAttribute("data-md-color-scheme", dark.matches ? "slate" : "default");
}

dark.addEventListener("change", choose);
choose();

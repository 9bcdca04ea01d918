// @ts-check
/**
 * Python begins to load before the theme's scripts have run: at once where the page was built with
 * a calculator at its top, else when one is found in sight while the page is still being read.
 * Everything later is calculator.js's business.
 */

import { isInSight, savesData } from "./near.js";
import { python } from "./runtime.js";

const looking = new AbortController();
// What is read of the page tells where the calculator is, and a style that arrives moves it.
const watcher = new MutationObserver(look);

function look() {
  const section = document.querySelector(".tm[data-runtime]");
  if (!(section instanceof HTMLElement) || !isInSight(section)) return;
  stop();
  python(JSON.parse(section.dataset.runtime ?? "{}")).start();
}

function stop() {
  watcher.disconnect();
  looking.abort();
}

/** The script that loads this, where the build found a calculator at the top of its page. */
const top = document.querySelector("script[data-python]");

if (top instanceof HTMLElement) {
  if (!savesData()) python(JSON.parse(top.dataset.python ?? "{}")).start();
} else if (document.readyState === "loading") {
  const { signal } = looking;
  watcher.observe(document, { childList: true, subtree: true });
  document.addEventListener("load", look, { capture: true, signal });
  document.addEventListener("DOMContentLoaded", stop, { signal });
  look();
}

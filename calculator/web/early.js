// @ts-check
/**
 * Python begins to load before the theme's scripts have run, when a calculator is found in sight while
 * the page is still being read. Where one stands at the top of its page, first.js is quicker still;
 * everything later is calculator.js's business.
 */

import { isInSight } from "./near.js";
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

if (document.readyState === "loading") {
  const { signal } = looking;
  watcher.observe(document, { childList: true, subtree: true });
  document.addEventListener("load", look, { capture: true, signal });
  document.addEventListener("DOMContentLoaded", stop, { signal });
  look();
}

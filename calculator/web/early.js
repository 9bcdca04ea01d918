// @ts-check
/**
 * Looks for a calculator while its page is still being read: where one is in sight, Python begins
 * to load before the theme's scripts have run. Everything else is calculator.js's business.
 */

import { isInSight } from "./near.js";
import { python } from "./runtime.js";

const SECTION = ".tm[data-runtime]";

/** Whether there is nothing more to wait for. */
function look() {
  const section = document.querySelector(SECTION);
  if (!(section instanceof HTMLElement)) return false;
  if (isInSight(section)) python(JSON.parse(section.dataset.runtime ?? "{}")).start();
  return true;
}

if (!look() && document.readyState === "loading") {
  const watcher = new MutationObserver(() => {
    if (look()) watcher.disconnect();
  });
  watcher.observe(document, { childList: true, subtree: true });
  document.addEventListener("DOMContentLoaded", () => watcher.disconnect());
}

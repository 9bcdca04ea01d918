// @ts-check
/**
 * When Python begins to load: as the reader nears a calculator, or touches it.
 */

/** How near a calculator is scrolled, in CSS pixels, before Python begins to load. */
const NEAR = 400;

/**
 * Start Python when the reader nears or touches `section`, unless it was started before; a try that
 * failed is repeated only when the reader asks.
 * @param {HTMLElement} section
 * @param {import("./runtime.js").Runtime} runtime
 * @param {AbortSignal} signal  says that nobody waits for it any more
 */
export function startWhenNear(section, runtime, signal) {
  const start = () => {
    if (runtime.state.name === "idle") runtime.start();
  };
  if (!savesData()) {
    const observer = new IntersectionObserver(
      (entries) => {
        if (!entries.some((entry) => entry.isIntersecting)) return;
        observer.disconnect();
        start();
      },
      { rootMargin: `${NEAR}px` },
    );
    observer.observe(section);
    signal.addEventListener("abort", () => observer.disconnect());
  }
  for (const touch of ["pointerdown", "focusin"]) {
    section.addEventListener(touch, start, { signal });
  }
}

/**
 * Whether a page still being read shows `section` so near its top that it is in sight at once.
 * @param {HTMLElement} section
 */
export function isInSight(section) {
  // Before its styles are there, a page is laid out in another way.
  const styles = document.querySelectorAll("link[rel=stylesheet]");
  const styled = [...styles].every((style) => /** @type {HTMLLinkElement} */ (style).sheet);
  return styled && !savesData() && section.getBoundingClientRect().top < innerHeight + NEAR;
}

/** Whether the reader wants to save data: then all of it is fetched on the first touch. */
export function savesData() {
  const { connection } = /** @type {{connection?: {saveData?: boolean}}} */ (navigator);
  return connection?.saveData === true;
}

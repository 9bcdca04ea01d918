// @ts-check
/**
 * The theme replaces a page's content without loading the page anew, and tells of it.
 */

/** Says on the window that the theme's script has come, where first.js had it wait. */
const THEME_CAME = "theme-came";

/**
 * Call `attach` for the page that is shown, now and whenever another takes its place. It may be
 * called twice for the same one.
 * @param {() => void} attach
 */
export function onEachPage(attach) {
  const follow = () =>
    /** @type {{document$?: {subscribe(next: () => void): void}}} */ (
      /** @type {unknown} */ (window)
    ).document$?.subscribe(attach);
  if ("document$" in window) {
    follow();
    return;
  }
  attach();
  addEventListener(THEME_CAME, follow, { once: true });
}

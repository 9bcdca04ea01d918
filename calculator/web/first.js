// @ts-check
/**
 * Begins Python's start while the rest of the page is still being read. The build writes this script
 * into the head of a page that has a calculator at its top, where it runs before any style or script
 * has arrived; runtime.js takes over what was begun here.
 *
 * It is a plain script, and what it needs to know stands in its own attributes.
 */

(() => {
  const { connection } = /** @type {{connection?: {saveData?: boolean}}} */ (navigator);
  const { python = "{}", root = "./", worker = "" } = document.currentScript?.dataset ?? {};

  // What the theme's script does, it does to a page that is whole without it; the build has it wait.
  // It comes once Python has answered, as soon as the reader does anything or points at what it
  // works, and after a moment in any case.
  const THEME_WAITS_MS = 1_500;

  function bringTheme() {
    if (document.readyState === "loading") {
      document.addEventListener("DOMContentLoaded", bringTheme, { once: true });
      return;
    }
    const waiting = document.querySelector("script[data-later]");
    if (!(waiting instanceof HTMLScriptElement)) return;
    const script = document.createElement("script");
    script.src = waiting.dataset.later ?? "";
    script.addEventListener("load", () => {
      dispatchEvent(new Event("theme-came"));
      // The theme begins with this event, which was over.
      document.dispatchEvent(new Event("DOMContentLoaded"));
    });
    waiting.replaceWith(script);
  }

  for (const touch of ["pointerdown", "keydown", "focusin"]) addEventListener(touch, bringTheme, { once: true });
  addEventListener("pointerover", ({ target }) => {
    if (target instanceof Element && target.closest("header, nav")) bringTheme();
  });
  // Whoever wants to save data asks for Python first; see near.js.
  setTimeout(bringTheme, connection?.saveData ? 0 : THEME_WAITS_MS);
  if (connection?.saveData) return;

  performance.mark("python: wanted");
  /** @type {import("./runtime.js").Begun} */
  const begun = { worker: new Worker(worker, { type: "module" }), told: [] };
  begun.worker.onmessage = ({ data }) => begun.told.push(data);
  begun.worker.onerror = (event) => {
    event.preventDefault();
    begun.told.push({ type: "failed", reason: event.message });
  };
  begun.worker.postMessage({
    type: "start",
    kind: "quick",
    manifest: JSON.parse(python),
    root: new URL(root, location.href).href,
  });
  /** @type {any} */ (window).pythonBegun = begun;

  /** @type {Promise<void>} */
  const started = new Promise((resolve) => {
    begun.worker.addEventListener("message", ({ data }) => {
      if (data.type === "answer" || data.type === "failed") resolve();
    });
  });

  // After the answer's own picture.
  void started.then(() => requestAnimationFrame(() => setTimeout(bringTheme)));

  // The theme's search reads its whole index as the page opens, on a core that Python's start needs;
  // here it does so once Python is ready, or the reader turns to it.
  const PlainWorker = window.Worker;
  const WAITS_MS = 10_000;

  class LateWorker extends EventTarget {
    /** @type {Worker | undefined} */
    #worker;
    /** @type {unknown[]} */
    #untold = [];
    #address;

    /** @param {string | URL} address */
    constructor(address) {
      super();
      this.#address = address;
      const begin = () => this.#begin();
      void started.then(begin);
      addEventListener("focusin", ({ target }) => {
        if (target instanceof Element && target.closest(".md-search")) begin();
      });
      setTimeout(begin, WAITS_MS);
    }

    #begin() {
      if (this.#worker) return;
      this.#worker = new PlainWorker(this.#address);
      this.#worker.onmessage = ({ data }) => this.dispatchEvent(new MessageEvent("message", { data }));
      for (const message of this.#untold) this.#worker.postMessage(message);
    }

    /** @param {unknown} message */
    postMessage(message) {
      if (this.#worker) this.#worker.postMessage(message);
      else this.#untold.push(message);
    }
  }

  /** @type {any} */ (window).Worker = new Proxy(PlainWorker, {
    construct: (plain, [address, options]) =>
      String(address).includes("/workers/search.") ? new LateWorker(address) : new plain(address, options),
  });
})();

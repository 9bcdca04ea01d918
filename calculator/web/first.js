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
  // Whoever wants to save data asks first; see near.js.
  if (connection?.saveData) return;
  const { python = "{}", root = "./", worker = "" } = document.currentScript?.dataset ?? {};
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
      begun.worker.addEventListener("message", ({ data }) => {
        if (data.type === "answer" || data.type === "failed") begin();
      });
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

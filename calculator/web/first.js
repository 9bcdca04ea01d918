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
})();

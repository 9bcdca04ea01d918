// @ts-check
/**
 * A worker's half of carried.js: what the worker would fetch or import comes from its page.
 * It stands before the worker's own script.
 */

(() => {
  /** @type {Map<string, {resolve: (bytes: ArrayBuffer) => void, reject: (error: Error) => void}>} */
  const asked = new Map();

  self.addEventListener("message", (event) => {
    const { type, address, bytes, reason } = event.data ?? {};
    if (type !== "carried") return;
    event.stopImmediatePropagation(); // the worker's own script knows nothing of it
    const waiting = asked.get(address);
    asked.delete(address);
    if (bytes) waiting?.resolve(bytes);
    else waiting?.reject(new Error(reason));
  });

  /**
   * @param {string} address
   * @returns {Promise<ArrayBuffer>}
   */
  function carry(address) {
    return new Promise((resolve, reject) => {
      asked.set(address, { resolve, reject });
      self.postMessage({ type: "carry", address });
    });
  }

  /** @type {any} */
  const scope = self;

  scope.fetch = async (/** @type {RequestInfo | URL} */ address) =>
    new Response(await carry(String(address instanceof Request ? address.url : address)));

  scope.bring = async (/** @type {string} */ address) => {
    const script = new Blob([await carry(address)], { type: "text/javascript" });
    return import(URL.createObjectURL(script));
  };
})();

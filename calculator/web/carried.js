// @ts-check
/**
 * For copies of the site that are opened from a disk (file:), where a browser fetches nothing: files
 * are carried as scripts instead, which may be loaded, and handed to whoever would have fetched them.
 *
 * A carried file calls `carried.put(path, text)`, or stands in the page itself as a block of data;
 * its text is gzip in base64. Workers begin from text, too, and get what they fetch from here; their
 * half of this is carried-worker.js. build/offline.py makes such copies.
 */

(() => {
  /** The copy's root. */
  const root = new URL(document.documentElement.dataset.root ?? "./", location.href);

  /** Texts by path, as they have arrived. @type {Map<string, string>} */
  const texts = new Map();
  /** @type {Map<string, Promise<string>>} */
  const asked = new Map();

  /**
   * @param {string} path  from the copy's root
   * @returns {Promise<string>}
   */
  function text(path) {
    const inPage = document.querySelector(`script[data-carried="${CSS.escape(path)}"]`);
    if (inPage) return Promise.resolve(inPage.textContent ?? "");
    const known = asked.get(path);
    if (known) return known;
    const arriving = new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = new URL(`assets/carried/${path.split("/").at(-1)}.js`, root).href;
      script.addEventListener("load", () => resolve(texts.get(path) ?? ""));
      script.addEventListener("error", () => {
        asked.delete(path); // to be tried again
        reject(new Error(`${path} is missing from this copy`));
      });
      document.head.append(script);
    });
    asked.set(path, arriving);
    return arriving;
  }

  /**
   * @param {string} path
   * @returns {Promise<ArrayBuffer>}
   */
  async function bytes(path) {
    const binary = atob((await text(path)).trim());
    const packed = Uint8Array.from(binary, (letter) => letter.charCodeAt(0));
    const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(unpacked).arrayBuffer();
  }

  /** @param {string | URL} address */
  const pathOf = (address) => decodeURI(new URL(address, location.href).href.slice(root.href.length));

  const PlainWorker = window.Worker;

  /** A worker whose script is carried, and which has carried files instead of a network. */
  class CarriedWorker extends EventTarget {
    /** @type {Promise<Worker>} */
    #worker;
    #ended = false;

    /** @param {string | URL} address */
    constructor(address) {
      super();
      this.#worker = this.#start(pathOf(address));
      this.#worker.catch((error) => {
        this.dispatchEvent(new ErrorEvent("error", { message: error.message, cancelable: true }));
      });
    }

    /** @param {string} path */
    async #start(path) {
      const script = new Blob([await bytes(path)], { type: "text/javascript" });
      const worker = new PlainWorker(URL.createObjectURL(script));
      if (this.#ended) worker.terminate();
      worker.addEventListener("message", (event) => this.#onMessage(worker, event));
      worker.addEventListener("error", ({ message }) => {
        this.dispatchEvent(new ErrorEvent("error", { message, cancelable: true }));
      });
      return worker;
    }

    /**
     * @param {Worker} worker
     * @param {MessageEvent} event
     */
    async #onMessage(worker, { data }) {
      if (data?.type !== "carry") {
        this.dispatchEvent(new MessageEvent("message", { data }));
        return;
      }
      const { address } = data;
      try {
        const found = await bytes(pathOf(address));
        worker.postMessage({ type: "carried", address, bytes: found }, [found]);
      } catch (error) {
        worker.postMessage({ type: "carried", address, reason: String(error) });
      }
    }

    /** @param {unknown} message */
    postMessage(message) {
      void this.#worker.then((worker) => worker.postMessage(message));
    }

    terminate() {
      this.#ended = true;
      void this.#worker.then((worker) => worker.terminate());
    }
  }

  /** @type {any} */ (window).Worker = CarriedWorker;
  /** @type {any} */ (window).carried = {
    /**
     * @param {string} path
     * @param {string} carriedText
     */
    put: (path, carriedText) => texts.set(path, carriedText),
  };
})();

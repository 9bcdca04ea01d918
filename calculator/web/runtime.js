// @ts-check
/**
 * The page's side of Python: one worker for the life of the page, started when first wanted.
 */

/**
 * What the built page says of the runtime; paths are relative to the site's root.
 * @typedef {object} Manifest
 * @property {string} pyodide
 * @property {string} package
 * @property {Record<string, number>} files  each file's size in bytes
 * @property {number} size  what all of them weigh on the way, compressed
 */

/**
 * @typedef {{name: "idle"} | {name: "loading", share: number} | {name: "ready"}
 *   | {name: "failed", reason: string}} State
 */

/** The Python module that answers where no other is named. */
const DOOR = "training_memory.web";

/** The site's root: this file is assets/calculator/runtime.js in it. */
const ROOT = new URL("../../", import.meta.url);

export class Runtime {
  /** @type {State} */
  state = { name: "idle" };

  /** @type {Set<(state: State) => void>} */
  #watchers = new Set();
  /** @type {Worker | undefined} */
  #worker;
  /** @type {Map<number, {resolve: (answer: string) => void, reject: (error: Error) => void}>} */
  #asked = new Map();
  #count = 0;
  /** Packages beside the calculator's, by their paths. @type {Map<string, Promise<string>>} */
  #used = new Map();
  #manifest;

  /** @param {Manifest} manifest */
  constructor(manifest) {
    this.#manifest = manifest;
  }

  /** What the start fetches, compressed, in bytes. */
  get size() {
    return this.#manifest.size;
  }

  /**
   * Hear of every change of state, until `signal` says that nobody listens any more.
   * @param {(state: State) => void} watcher
   * @param {AbortSignal} signal
   */
  watch(watcher, signal) {
    this.#watchers.add(watcher);
    signal.addEventListener("abort", () => this.#watchers.delete(watcher));
    watcher(this.state);
  }

  /** Start Python, unless it is started already; after a failure, try again. */
  start() {
    if (this.state.name === "loading" || this.state.name === "ready") return;
    this.#become({ name: "loading", share: 0 });
    try {
      this.#worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
    } catch (error) {
      this.#fail(error instanceof Error ? error.message : String(error));
      return;
    }
    // Scripts are imported, not fetched, and so not counted.
    const files = Object.entries(this.#manifest.files).filter(([path]) => !/\.m?js$/.test(path));
    const whole = files.reduce((sum, [, size]) => sum + size, 0);
    let loaded = 0;
    this.#worker.addEventListener("message", ({ data }) => {
      if (data.type === "progress") {
        loaded += data.bytes;
        this.#become({ name: "loading", share: Math.min(1, loaded / whole) });
      } else if (data.type === "ready") this.#become({ name: "ready" });
      else if (data.type === "failed") this.#fail(data.reason);
      else this.#answered(data);
    });
    this.#worker.addEventListener("error", (event) => {
      event.preventDefault();
      this.#fail(event.message || "its script did not load");
    });
    const at = (/** @type {string} */ path) => new URL(path, ROOT).href;
    this.#worker.postMessage({
      type: "start",
      pyodide: at(this.#manifest.pyodide),
      package: at(this.#manifest.package),
      fetched: files.map(([path]) => at(path)),
    });
  }

  /**
   * Start Python if need be, and wait for it. Rejects with the reason of a start that fails.
   * @param {AbortSignal} signal  says that nobody waits any more, which rejects too
   * @returns {Promise<void>}
   */
  async started(signal) {
    this.start();
    signal.throwIfAborted();
    const waiting = new AbortController();
    try {
      await new Promise((resolve, reject) => {
        signal.addEventListener("abort", () => reject(signal.reason), { signal: waiting.signal });
        this.watch((state) => {
          if (state.name === "ready") resolve(undefined);
          else if (state.name === "failed") reject(new Error(state.reason));
        }, waiting.signal);
      });
    } finally {
      waiting.abort();
    }
  }

  /**
   * Have Python hold one more package, which is fetched the first time. Python must be ready.
   * @param {string} path  relative to the site's root
   */
  async use(path) {
    let used = this.#used.get(path);
    if (used === undefined) {
      used = this.#send({ type: "use", package: new URL(path, ROOT).href });
      this.#used.set(path, used);
    }
    try {
      await used;
    } catch (error) {
      this.#used.delete(path);
      throw error;
    }
  }

  /**
   * Have one request answered. Python must be ready.
   * @param {string} request
   * @param {string} [door]  the Python module whose `answer` is asked
   */
  ask(request, door = DOOR) {
    return this.#send({ type: "ask", door, request });
  }

  /**
   * @param {Record<string, string>} message
   * @returns {Promise<string>}
   */
  #send(message) {
    return new Promise((resolve, reject) => {
      const id = ++this.#count;
      this.#asked.set(id, { resolve, reject });
      this.#worker?.postMessage({ ...message, id });
    });
  }

  /** @param {{type: string, id: number, answer: string, reason: string}} message */
  #answered(message) {
    const asked = this.#asked.get(message.id);
    this.#asked.delete(message.id);
    if (message.type === "answer") asked?.resolve(message.answer);
    else asked?.reject(new Error(message.reason));
  }

  /** @param {string} reason */
  #fail(reason) {
    this.#worker?.terminate();
    this.#worker = undefined;
    for (const { reject } of this.#asked.values()) reject(new Error(reason));
    this.#asked.clear();
    this.#used.clear();
    this.#become({ name: "failed", reason });
  }

  /** @param {State} state */
  #become(state) {
    this.state = state;
    for (const watcher of this.#watchers) watcher(state);
  }
}

/** @type {Runtime | undefined} */
let shared;

/**
 * Python for everything on this page and on those that follow it.
 * @param {Manifest} manifest
 */
export function python(manifest) {
  shared ??= new Runtime(manifest);
  return shared;
}

// @ts-check
/**
 * The page's side of Python: one worker for the life of the page, started when first wanted.
 */

/**
 * What the built page says of the runtime; paths are relative to the site's root.
 * @typedef {object} Manifest
 * @property {string} pyodide
 * @property {Record<string, string>} info
 * @property {string} library
 * @property {string} package
 * @property {{path: string, memory: number, whole: number}} snapshot
 * @property {Record<Kind, Record<string, number>>} starts  the bytes of each file that a start needs
 * @property {number} size  what the quick start's files weigh on the way, compressed
 */

/**
 * How Python starts: from the memory that the build took, or, where that fails, from nothing.
 * @typedef {"quick" | "plain"} Kind
 */

/**
 * A start that first.js began before this script was there, and what its worker has told since.
 * @typedef {object} Begun
 * @property {Worker} worker
 * @property {Message[]} told
 */

/** What the worker tells; see worker.js. @typedef {any} Message */

/**
 * Something that Python was asked for and has not given yet.
 * @typedef {object} Asked
 * @property {Record<string, unknown>} message
 * @property {(answer: string) => void} resolve
 * @property {(error: Error) => void} reject
 */

/**
 * @typedef {{name: "idle"} | {name: "loading", share: number} | {name: "ready"}
 *   | {name: "failed", reason: string}} State
 */

/** How long a start from memory may take once that is there; a memory gone wrong may never end. */
const PATIENCE_MS = 20_000;

/**
 * How often a worker that is waited for is asked whether it still lives, and how often in vain: nobody
 * tells a page that its worker was ended for want of memory.
 */
const PULSE_MS = 10_000;
const PULSES = 3;
/** While it starts: some stages keep a slow machine's worker busy for long, and none says so before. */
const PULSES_OF_START = 9;

/** The Python module that answers where no other is named. */
const DOOR = "training_memory.web";

/** The site's root: this file is assets/HASH/calculator/runtime.js in it. */
const ROOT = new URL("../../../", import.meta.url);

export class Runtime {
  /** @type {State} */
  state = { name: "idle" };

  /** @type {Set<(state: State) => void>} */
  #watchers = new Set();
  /** @type {Worker | undefined} */
  #worker;
  /** @type {Kind} */
  #kind = "quick";
  /** @type {Map<number, Asked>} */
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
    this.#kind = "quick";
    this.#begin();
  }

  #begin() {
    const begun = this.#kind === "quick" ? takeBegun() : undefined;
    if (begun === undefined) performance.mark("python: wanted");
    this.#become({ name: "loading", share: 0 });
    const worker = begun?.worker ?? this.#makeWorker();
    if (worker === undefined) return;
    this.#worker = worker;
    // Scripts are imported, not fetched, and so not counted.
    const files = Object.entries(this.#manifest.starts[this.#kind]);
    const whole = files.reduce((sum, [path, size]) => sum + (/\.m?js$/.test(path) ? 0 : size), 0);
    let loaded = 0;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let patience;
    let unheard = 0;
    const isReady = () => this.state.name === "ready";
    const pulse = setInterval(() => {
      if (this.#worker !== worker) clearInterval(pulse);
      else if (isReady() && this.#asked.size === 0) unheard = 0;
      else if ((unheard += 1) < (isReady() ? PULSES : PULSES_OF_START)) worker.postMessage({ type: "pulse" });
      else hear({ type: "failed", reason: "it gave no sign of life" });
    }, PULSE_MS);
    const hear = (/** @type {Message} */ message) => {
      if (this.#worker !== worker) return; // it was given up
      unheard = 0;
      if (message.type === "pulse") return;
      if (message.type === "progress") {
        // What is fetched once Python is ready is no part of its start.
        if (this.state.name !== "loading") return;
        loaded += message.bytes;
        this.#become({ name: "loading", share: Math.min(1, loaded / whole) });
        return;
      }
      clearTimeout(patience);
      if (message.type === "restoring") {
        patience = setTimeout(() => hear({ type: "failed", reason: "it never ended" }), PATIENCE_MS);
        return;
      }
      if (message.type === "ready") this.#ready();
      else if (message.type === "failed") this.#failed(message.reason);
      else this.#answered(message);
    };
    // Copies of the site have a worker of their own kind; see carried.js.
    worker.addEventListener("message", ({ data }) => hear(data));
    worker.addEventListener("error", (event) => {
      event.preventDefault();
      hear({ type: "failed", reason: event.message || "its script did not load" });
    });
    if (begun) {
      worker.onmessage = worker.onerror = null;
      for (const message of begun.told) hear(message);
    } else {
      const [kind, manifest, root] = [this.#kind, this.#manifest, ROOT.href];
      worker.postMessage({ type: "start", kind, manifest, root });
    }
  }

  #makeWorker() {
    try {
      return new Worker(new URL("worker.js", import.meta.url), { type: "module" });
    } catch (error) {
      this.#fail(error instanceof Error ? error.message : String(error));
      return undefined;
    }
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
    const used = this.#used.get(path) ?? this.#fetch(path);
    try {
      await used;
    } catch (error) {
      this.#used.delete(path);
      throw error;
    }
  }

  /** @param {string} path */
  #fetch(path) {
    const used = this.#send({ type: "use", package: new URL(path, ROOT).href });
    this.#used.set(path, used);
    return used;
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
   * Have a long piece of work done, a slice at a time: whatever else is asked meanwhile waits for no
   * more than the slice that is under way. Who wants no more asks for no more.
   * @param {object} request
   * @param {string} door  the Python module that is asked
   * @returns {AsyncGenerator<any, void, void>} what came of each slice
   */
  async *slices(request, door) {
    for (let turn = 0; ; turn += 1) {
      const told = JSON.parse(await this.ask(JSON.stringify({ ...request, turn }), door));
      yield told;
      if (!told.ok || told.done) return;
    }
  }

  /**
   * @param {Record<string, string>} message
   * @returns {Promise<string>}
   */
  #send(message) {
    return new Promise((resolve, reject) => {
      const id = ++this.#count;
      this.#asked.set(id, { message: { ...message, id }, resolve, reject });
      this.#worker?.postMessage({ ...message, id });
    });
  }

  async #ready() {
    tellReady(undefined);
    // After a memory that broke: what it held besides, and then what it left unanswered.
    const worker = this.#worker;
    const left = [...this.#asked.values()];
    const fetched = new Set(left.map(({ message }) => message.package));
    const lost = [...this.#used.keys()].filter((path) => !fetched.has(new URL(path, ROOT).href));
    await Promise.all(lost.map((path) => this.#fetch(path).catch(() => this.#used.delete(path))));
    if (worker !== this.#worker) return; // it failed meanwhile
    for (const { message } of left) worker?.postMessage(message);
    this.#become({ name: "ready" });
  }

  /**
   * @param {{type: string, id: number, answer: string, reason: string, unreachable: boolean}} message
   */
  #answered(message) {
    const asked = this.#asked.get(message.id);
    if (message.type !== "answer" && !message.unreachable && this.#kind === "quick") {
      // Python's doors answer whatever they are asked, so the memory may be at fault.
      this.#failed(message.reason);
      return;
    }
    this.#asked.delete(message.id);
    // scripts/benchmarks/start.py looks for the first.
    if (message.id === 1) performance.mark("python: first answer");
    if (message.type === "answer") asked?.resolve(message.answer);
    else asked?.reject(new Error(message.reason));
  }

  /**
   * A start, or what it brought, is no good: try the plain one before giving up.
   * @param {string} reason
   */
  #failed(reason) {
    if (this.#kind === "plain") {
      this.#fail(reason);
      return;
    }
    this.#worker?.terminate();
    this.#kind = "plain";
    this.#begin();
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

/** @type {(nothing: undefined) => void} */
let tellReady;
/** Resolves when Python has started on this page for the first time. @type {Promise<undefined>} */
export const ready = new Promise((resolve) => (tellReady = resolve));

/**
 * What first.js began, once.
 * @returns {Begun | undefined}
 */
function takeBegun() {
  const scope = /** @type {{pythonBegun?: Begun}} */ (/** @type {unknown} */ (window));
  const begun = scope.pythonBegun;
  delete scope.pythonBegun;
  return begun;
}

/** @type {Runtime | undefined} */
let shared;

/**
 * Python for everything on this page and on those that follow it.
 * @param {Manifest} manifest
 */
export function python(manifest) {
  shared ??= new Runtime(manifest);
  if ("pythonBegun" in window) shared.start();
  return shared;
}

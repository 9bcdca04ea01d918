// @ts-check
/**
 * Python, in a thread of its own: starts once, then answers one request after the other.
 *
 * Comes in: {type: "start", ...Start}, then {type: "ask", id, door, request} and, for a door
 *           in a package that the start does not bring, {type: "use", id, package} before it;
 *           {type: "pulse"}, which goes out again.
 * Goes out: {type: "pulse"}, {type: "progress", bytes}, {type: "restoring"}, {type: "ready"}, {type: "failed", reason},
 *           {type: "answer", id, answer} or {type: "failed-answer", id, reason, unreachable}.
 *
 * Requests and answers are JSON text: whole numbers larger than a double holds stay whole.
 */

/**
 * What a start is made of, as the page says it.
 * @typedef {object} Start
 * @property {import("./runtime.js").Manifest} manifest
 * @property {import("./runtime.js").Kind} kind
 * @property {string} root  the site's, from which the manifest's paths lead
 */

/**
 * Where the runtime's files are, and how to start from them.
 * @typedef {object} StartOptions
 * @property {string} pyodide  address of the folder with Pyodide's files, with its closing slash
 * @property {string} library  address of Python's standard library
 * @property {string} package  address of the calculator's wheel
 * @property {Record<string, string>} info  what Pyodide's lock file says of its build
 * @property {Snapshot | undefined} snapshot  the memory to begin with; without it, Python starts
 *   plainly
 */

/**
 * Python's memory with the calculator already imported; build/snapshot.mjs describes the file.
 * @typedef {object} Snapshot
 * @property {string} address
 * @property {number} memory  size of Pyodide's own snapshot, in bytes
 * @property {number} whole  size of the file, unpacked, in bytes
 */

/** A zip of nothing: a memory that was restored holds what it needs of the library. */
const EMPTY_ZIP = new Uint8Array([0x50, 0x4b, 5, 6, ...Array(18).fill(0)]);

const WASM = "application/wasm";

/** The scope in which Pyodide's loader leaves the function that makes its module. @type {any} */
const scope = self;

/** Imports a module; in a copy of the site without a server, carried-worker.js does. */
const bring = scope.bring ?? ((/** @type {string} */ address) => import(address));

/** Pyodide's own object, which carries no types. @type {any} */
let python;

/** Fetches what a restored memory lacks; there is nothing to fetch after a plain start.
 * @type {(() => Promise<void>) | undefined} */
let completeLibrary;

/** Doors that were asked before: the function `answer` of a Python module, by its name.
 * @type {Map<string, (request: string) => string>} */
const doors = new Map();

/**
 * Note when a stage of the start is reached; a browser's tools and scripts/benchmarks/start.py show it.
 * From one to the next a slow machine may hear of nothing, so it is a sign of life too.
 * @param {string} stage
 */
function mark(stage) {
  performance.mark(`python: ${stage}`);
  say({ type: "pulse" });
}

/** @param {Record<string, unknown>} message */
function say(message) {
  self.postMessage(message);
}

self.addEventListener("message", async ({ data }) => {
  clearTimeout(tidying);
  if (data.type === "start") {
    try {
      python = await start(optionsOf(data));
      say({ type: "ready" });
    } catch (error) {
      say({ type: "failed", reason: reasonOf(error) });
    }
  } else if (data.type === "pulse") {
    say({ type: "pulse" });
  } else if (python !== undefined) {
    try {
      const answer = data.type === "use" ? await use(data.package) : await ask(data);
      say({ type: "answer", id: data.id, answer });
      tidying = setTimeout(tidyUp, TIDY_AFTER_MS);
      if (data.door === WARMED) warmUp(data);
    } catch (error) {
      const unreachable = error instanceof Unreachable;
      say({ type: "failed-answer", id: data.id, reason: reasonOf(error), unreachable });
    }
  }
});

/** Says that a file could not be fetched, which is no fault of Python's. */
class Unreachable extends Error {}

/** @param {unknown} error */
function reasonOf(error) {
  // Emscripten's errors are no Errors.
  const text = String(/** @type {{message?: unknown} | undefined} */ (error)?.message ?? error);
  // Of a Python traceback the last line says what happened.
  return text.trim().split("\n").at(-1) ?? "";
}

/**
 * @param {Start} start
 * @returns {StartOptions}
 */
function optionsOf({ manifest, kind, root }) {
  const at = (/** @type {string} */ path) => new URL(path, root).href;
  const { pyodide, info, library, package: wheel, snapshot } = manifest;
  return {
    pyodide: at(pyodide),
    library: at(library),
    package: at(wheel),
    info,
    snapshot: kind === "quick" ? { ...snapshot, address: at(snapshot.path) } : undefined,
  };
}

/**
 * @param {StartOptions} options
 * @returns {Promise<any>}
 */
function start(options) {
  mark("asked for");
  const { pyodide, library, snapshot } = options;
  // 1. Begin every download now: Pyodide itself would ask for one after the other.
  const begun = {
    loader: bring(`${pyodide}pyodide.asm.js`),
    pyodide: bring(`${pyodide}pyodide.mjs`),
    compiled: compile(`${pyodide}pyodide.asm.wasm`),
    memory: snapshot && memoryOf(snapshot),
    library: snapshot ? Promise.resolve(new Response(EMPTY_ZIP)) : counted(library),
    wheel: snapshot ? undefined : counted(options.package),
  };
  // Pyodide only warns of a file that fails, and then waits for ever.
  return Promise.race([startFrom(begun, options), failureOf(Object.values(begun))]);
}

/**
 * @param {{[file: string]: Promise<any> | undefined, compiled: Promise<WebAssembly.Module>}} begun
 * @param {StartOptions} options
 */
async function startFrom(begun, options) {
  const { pyodide, library, snapshot } = options;
  const { loadPyodide } = await begun.pyodide;
  await begun.loader;
  mark("loader read");

  // 2. Hand Pyodide what is on its way where it would fetch for itself.
  handOver({
    [library]: begun.library,
    [`${pyodide}pyodide.asm.wasm`]: Promise.resolve(new Response()), // compiled already
  });
  WebAssembly.instantiateStreaming = async (_, imports) => {
    const module = await begun.compiled;
    return { module, instance: await WebAssembly.instantiate(module, imports) };
  };

  // 3. Start Python. Pyodide makes errors to keep, and to note where each was made V8 reads all of
  //    its loader once more.
  const errors = /** @type {{stackTraceLimit: number}} */ (/** @type {unknown} */ (Error));
  const { stackTraceLimit } = errors;
  errors.stackTraceLimit = 0;
  const started = await loadPyodide({
    indexURL: pyodide,
    stdLibURL: library,
    lockFileContents: { info: options.info, packages: {} },
    packageBaseUrl: pyodide,
    ...(begun.memory && { _loadSnapshot: beginWith(begun.memory, snapshot?.memory ?? 0) }),
  });
  errors.stackTraceLimit = stackTraceLimit;
  mark("started");

  // 4. Unpack the calculator, unless memory holds it, and import it: a start that works is one
  //    that can answer.
  if (begun.wheel) unpack(started, await (await begun.wheel).arrayBuffer());
  else completeLibrary = () => fetchLibrary(options);
  started.pyimport("training_memory.web");
  mark("calculator imported");
  return started;
}

/**
 * The bytes of a memory that travels compressed by us: hosts compress what they know, and this they
 * do not.
 * @param {Snapshot} snapshot
 */
async function memoryOf({ address, whole }) {
  const { body } = await counted(address);
  const unpacked = /** @type {ReadableStream} */ (body).pipeThrough(new DecompressionStream("gzip"));
  const file = await new Response(unpacked).arrayBuffer();
  if (file.byteLength !== whole) throw new Error(`${address} is not whole`);
  mark("memory arrived");
  return file;
}

/**
 * Have Pyodide begin with a memory that may still be on its way. Pyodide would wait for it before
 * it makes its module, and would copy all of it, zeros too; it is told its size, and what is not in
 * place already is put there at the last moment.
 * @param {Promise<ArrayBuffer>} arriving
 * @param {number} size  of Pyodide's own snapshot
 */
function beginWith(arriving, size) {
  const create = scope._createPyodideModule;
  scope._createPyodideModule = async (/** @type {unknown} */ settings) => {
    const module = await create(settings);
    mark("module made");
    const file = await arriving;
    say({ type: "restoring" });
    const header = lay(file, module.HEAPU32);
    const restore = module.API.restoreSnapshot;
    module.API.restoreSnapshot = () => restore(header);
    return module;
  };
  return Object.defineProperty(new Uint8Array(0), "length", { value: size });
}

/**
 * Put the words that the file brings into their places.
 * @param {ArrayBuffer} file
 * @param {Uint32Array} memory  as WebAssembly has just laid it out
 * @returns {Uint8Array} the header of Pyodide's own snapshot
 */
function lay(file, memory) {
  const [, header = 0] = new Uint32Array(file, 0, 2);
  const [count = 0] = new Uint32Array(file, header, 1);
  const runs = new Uint32Array(file, header + 4, count);
  let at = header + 4 + 4 * count;
  for (let run = 0; run < count; run += 2) {
    const [from = 0, to = 0] = [runs[run], runs[run + 1]];
    memory.set(new Uint32Array(file, at, to - from), from);
    at += 4 * (to - from);
  }
  return new Uint8Array(file, 0, header);
}

/**
 * Compile WebAssembly while it arrives.
 * @param {string} address
 */
async function compile(address) {
  const response = await counted(address);
  // Browsers compile only what is named so, and not every host names it so.
  const named = response.headers.get("content-type")?.startsWith(WASM)
    ? response
    : new Response(response.body, { headers: { "content-type": WASM } });
  const module = await WebAssembly.compileStreaming(named);
  mark("compiled");
  return module;
}

/**
 * Fetch a file and tell of the bytes that arrive.
 * @param {string} address
 */
async function counted(address) {
  const response = await reach(address);
  // A copy is counted, beside the way that the file itself takes.
  tell(response.clone()).catch(() => {});
  return response;
}

/** How often the page hears of progress, and which bytes it has not heard of yet. */
const EVERY_MS = 50;
let untold = 0;
let told = 0;

/** @param {Response} response */
async function tell({ body }) {
  const reader = /** @type {ReadableStream<Uint8Array>} */ (body).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    untold += value?.byteLength ?? 0;
    if (done || performance.now() - told > EVERY_MS) {
      say({ type: "progress", bytes: untold });
      untold = 0;
      told = performance.now();
    }
    if (done) return;
  }
}

/** @param {string} address */
async function reach(address) {
  const response = await fetch(address).catch((error) => {
    throw new Unreachable(`${address} could not be fetched (${reasonOf(error)})`);
  });
  if (!response.ok) {
    throw new Unreachable(`${address} could not be fetched (${response.status})`);
  }
  return response;
}

/**
 * Have `fetch` answer with what was begun before, once each.
 * @param {Record<string, Promise<Response> | undefined>} begun  by address
 */
function handOver(begun) {
  const plainFetch = self.fetch;
  self.fetch = (address, init) => {
    const key = String(address instanceof Request ? address.url : address);
    const response = begun[key];
    delete begun[key];
    return response ?? plainFetch(address, init);
  };
}

/**
 * Never more than a rejection: that of the first that fails.
 * @param {(Promise<unknown> | undefined)[]} parts
 * @returns {Promise<never>}
 */
function failureOf(parts) {
  return new Promise((_, reject) => {
    for (const part of parts) part?.catch(reject);
  });
}

/**
 * Put a package where Python looks for them.
 * @param {any} pyodide
 * @param {ArrayBuffer} archive
 */
function unpack(pyodide, archive) {
  const site = pyodide.runPython("import site; site.getsitepackages()[0]");
  pyodide.unpackArchive(archive, "zip", { extractDir: site });
  // Python remembers what lies in a folder; now more does.
  pyodide.pyimport("importlib").invalidate_caches();
}

/**
 * Fetch one more package.
 * @param {string} address
 */
async function use(address) {
  unpack(python, await (await reach(address)).arrayBuffer());
  return "";
}

/** Python's errors for what is not there; the second is that of `from package import module`. */
const LACKING = new Set(["ModuleNotFoundError", "ImportError", "FileNotFoundError"]);

/**
 * @param {{door: string, request: string, id: number}} question  the Python module that answers, and what
 * @returns {Promise<string>}
 */
async function ask({ door, request, id }) {
  try {
    return answer(door, request, id);
  } catch (error) {
    const kind = /** @type {{type?: string}} */ (error).type ?? "";
    // A module or a file that no restored memory holds: it was never asked for before.
    if (!completeLibrary || !LACKING.has(kind)) throw error;
    await completeLibrary();
    return answer(door, request, id);
  }
}

/**
 * @param {string} door
 * @param {string} request
 * @param {number} [id]  whose question it is; nobody's where the browser is only warmed up
 */
function answer(door, request, id) {
  let found = doors.get(door);
  if (found === undefined) {
    found = /** @type {(request: string) => string} */ (python.pyimport(door).answer);
    doors.set(door, found);
  }
  const start = performance.now();
  try {
    return found(request);
  } finally {
    // scripts/benchmarks/changes.py looks for it.
    performance.measure("python: answer", { start, detail: { door, id } });
  }
}

/** Longer than a page takes to ask for the next slice of long work. */
const TIDY_AFTER_MS = 4;
/** What is new since Python last looked: its young generations. */
const YOUNG = 1;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let tidying;
/** Python's `gc.collect`. @type {((generation: number) => number) | undefined} */
let collect;

/** Look through what the last answers made for garbage: now, while the page paints, and not in the
 * middle of the next answer. */
function tidyUp() {
  const start = performance.now();
  collect ??= /** @type {(generation: number) => number} */ (python.pyimport("gc").collect);
  collect(YOUNG);
  performance.measure("python: tidied", { start });
}

/** The door that is asked again and again, and answers the same to the same. */
const WARMED = "training_memory.web";
const WARM_AFTER_MS = 150;
let cold = 24;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let warming;

/**
 * While nobody asks anything, answer the last question again, to nobody. A browser first compiles
 * WebAssembly quickly and what is used often once more, well: the first two dozen answers take up to
 * five times as long as those that follow, and a reader need not be the one who waits for them.
 * @param {{door: string, request: string}} last
 */
function warmUp(last) {
  clearTimeout(warming);
  if (cold === 0) return;
  warming = setTimeout(() => {
    cold -= 1;
    // One at a time: whatever the reader asks meanwhile comes in between.
    answer(last.door, last.request);
    warmUp(last);
  }, WARM_AFTER_MS);
}

/**
 * Bring what a restored memory did without: the whole standard library and the calculator's files.
 * @param {StartOptions} options
 */
async function fetchLibrary(options) {
  const [library, wheel] = await Promise.all([reach(options.library), reach(options.package)]);
  completeLibrary = undefined;
  const zip = python.runPython("import sys; next(p for p in sys.path if p.endswith('.zip'))");
  python.FS.writeFile(zip, new Uint8Array(await library.arrayBuffer()));
  python.runPython("import zipimport; zipimport._zip_directory_cache.clear()");
  python.runPython("sys.path_importer_cache.clear()");
  unpack(python, await wheel.arrayBuffer());
}

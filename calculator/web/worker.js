// @ts-check
/**
 * Python, in a thread of its own: starts once, then answers one request after the other.
 *
 * Comes in: {type: "start", ...StartOptions}, then {type: "ask", id, door, request} and, for a door
 *           in a package that the start does not bring, {type: "use", id, package} before it.
 * Goes out: {type: "progress", bytes}, {type: "ready"}, {type: "failed", reason},
 *           {type: "answer", id, answer} or {type: "failed-answer", id, reason}.
 *
 * Requests and answers are JSON text: whole numbers larger than a double holds stay whole.
 */

/**
 * Where the runtime's files are.
 * @typedef {object} StartOptions
 * @property {string} pyodide  address of the folder with Pyodide's files, with its closing slash
 * @property {string} package  address of the calculator's wheel
 * @property {string[]} fetched  addresses that the start will fetch, all begun at once
 */

/** Pyodide's own object, which carries no types. @type {any} */
let python;

/** Doors that were asked before: the function `answer` of a Python module, by its name.
 * @type {Map<string, (request: string) => string>} */
const doors = new Map();

/** @param {Record<string, unknown>} message */
function say(message) {
  self.postMessage(message);
}

self.addEventListener("message", async ({ data }) => {
  if (data.type === "start") {
    try {
      python = await start(data);
      say({ type: "ready" });
    } catch (error) {
      say({ type: "failed", reason: reasonOf(error) });
    }
  } else if (python !== undefined) {
    try {
      const answer = data.type === "use" ? await use(data.package) : ask(data.door, data.request);
      say({ type: "answer", id: data.id, answer });
    } catch (error) {
      say({ type: "failed-answer", id: data.id, reason: reasonOf(error) });
    }
  }
});

/** @param {unknown} error */
function reasonOf(error) {
  const text = error instanceof Error ? error.message : String(error);
  // Of a Python traceback the last line says what happened.
  return text.trim().split("\n").at(-1) ?? "";
}

/**
 * @param {StartOptions} options
 * @returns {Promise<any>}
 */
async function start(options) {
  // 1. Begin every download now: Pyodide itself would ask for one after the other.
  const begun = new Map(options.fetched.map((address) => [address, counted(address)]));
  const failed = failure([...begun.values()]);
  const plainFetch = self.fetch;
  self.fetch = (address, init) => {
    const key = String(address instanceof Request ? address.url : address);
    const response = begun.get(key);
    begun.delete(key);
    return response ?? plainFetch(address, init);
  };

  // 2. Start Python.
  const { loadPyodide } = await import(`${options.pyodide}pyodide.mjs`);
  const pyodide = await Promise.race([loadPyodide({ indexURL: options.pyodide }), failed]);

  // 3. Unpack the calculator, and import it: a start that works is one that can answer.
  unpack(pyodide, await (await self.fetch(options.package)).arrayBuffer());
  pyodide.pyimport("training_memory.web");
  return pyodide;
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
  const response = await fetch(address);
  if (!response.ok) throw new Error(`${address} could not be fetched (${response.status})`);
  unpack(python, await response.arrayBuffer());
  return "";
}

/**
 * @param {string} door  the Python module that answers
 * @param {string} request
 */
function ask(door, request) {
  let answer = doors.get(door);
  if (answer === undefined) {
    answer = /** @type {(request: string) => string} */ (python.pyimport(door).answer);
    doors.set(door, answer);
  }
  return answer(request);
}

/**
 * Never more than a rejection: of the first download that fails, or of a WebAssembly module that
 * this browser refuses. Pyodide only warns of either, and then waits for ever.
 * @param {Promise<Response>[]} downloads
 * @returns {Promise<never>}
 */
function failure(downloads) {
  return new Promise((_, reject) => {
    for (const download of downloads) download.catch(reject);
    const instantiate = WebAssembly.instantiateStreaming;
    WebAssembly.instantiateStreaming = async (source, imports) => {
      try {
        return await instantiate(source, imports);
      } catch (error) {
        reject(error);
        throw error;
      }
    };
  });
}

/**
 * Fetch a file and tell of every piece of it that arrives.
 * @param {string} address
 * @returns {Promise<Response>}
 */
async function counted(address) {
  const response = await fetch(address);
  if (!response.ok || response.body === null) {
    throw new Error(`${address} could not be fetched (${response.status})`);
  }
  const counter = new TransformStream({
    transform(piece, controller) {
      say({ type: "progress", bytes: piece.byteLength });
      controller.enqueue(piece);
    },
  });
  // The headers go along: only what is served as WebAssembly is compiled while it arrives.
  return new Response(response.body.pipeThrough(counter), { headers: response.headers });
}

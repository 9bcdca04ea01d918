// @ts-check
/**
 * Python's memory as it is once the calculator is imported and has answered, written to a file that
 * a page restores instead of starting Python anew. `node snapshot.mjs PYODIDE WHEEL PLAN INTO`;
 * PLAN is JSON: the `requests` that the calculator answers before its memory is taken, the `films`
 * that it makes, what `imports` it needs besides, and which of its modules are `not` to be in it.
 *
 * The file is gzip, so that its size on the way does not depend on what a host compresses. In it:
 *
 *   the header of Pyodide's own snapshot;
 *   a 32-bit number, of how many numbers follow; pairs of them: from which word to which the memory
 *     is not as WebAssembly lays it out before Python runs;
 *   those words. A page has the others already: they are zeros, or come with WebAssembly.
 *
 * What is printed is JSON: the size of Pyodide's snapshot and that of the file, before gzip.
 *
 * `_makeSnapshot` and what belongs to it are private to Pyodide and bound to one exact build of it,
 * which is why its version is pinned and a page falls back to the plain start on any error.
 */

import crypto from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { gzipSync } from "node:zlib";

// The reason alone: Node would show the line that failed, and Pyodide's is a million characters long.
process.on("uncaughtException", (error) => {
  console.error(error.stack ?? String(error));
  process.exit(1);
});

const [pyodide, wheel, plan, into] = process.argv.slice(2);
if (!pyodide || !wheel || !plan || !into) {
  console.error("usage: node snapshot.mjs PYODIDE WHEEL PLAN INTO");
  process.exit(2);
}
const folder = `${resolve(pyodide)}/`;

/** Fewer words between two runs than this are not worth a pair, nor a page's time to go by it. */
const LEAST_GAP = 64;

/** Any scope of Pyodide's: it keeps its loader's function there. @type {any} */
const scope = globalThis;

// The same sources should give the same file, so that a rebuilt site is no new version. What Python
// reads of the outside world is therefore fixed; nothing of this depends on chance for its safety.
crypto.randomFillSync = (/** @type {any} */ array) => array.fill(7);
const EPOCH_MS = 315532800000;
Date.now = () => EPOCH_MS;
performance.now = () => 0;

const { loadPyodide } = await import(`${folder}pyodide.mjs`);
const { info } = JSON.parse(readFileSync(`${folder}pyodide-lock.json`, "utf8"));

/** @param {Record<string, string>} [env]  variables of the environment besides ours */
function options(env) {
  return {
    indexURL: folder,
    lockFileContents: { info, packages: {} },
    packageBaseUrl: folder,
    _sysExecutable: "python",
    env: {
      ...env,
      PYTHONHASHSEED: "0",
      // Without docstrings and assertions the memory is a tenth smaller. Line numbers stay.
      PYTHONOPTIMIZE: "2",
      // Without the column of each instruction, which only underlines in a traceback, it is a
      // twelfth smaller again.
      PYTHONNODEBUGRANGES: "1",
    },
  };
}

const laidOut = await wordsOfEveryPage();
const python = await loadPyodide({ ...options(), _makeSnapshot: true });
importAndAnswer();
zeroWhatIsFree();
const snapshot = python.makeMemorySnapshot();
const file = patch(snapshot);
writeFileSync(into, gzipSync(file, { level: 9 }));
console.log(JSON.stringify({ memory: snapshot.length, whole: file.length }));

/**
 * The words that WebAssembly lays out in every page alike, and NaN for others: a reader's language,
 * for one, becomes a variable of the environment.
 */
async function wordsOfEveryPage() {
  // A first start loads the function that makes the module.
  await loadPyodide(options());
  const here = await memoryLaidOut();
  const there = await memoryLaidOut({ LANG: "elsewhere ".repeat(300) });
  return Float64Array.from(here, (word, at) => (word === there[at] ? word : NaN));
}

/**
 * The memory as WebAssembly lays it out, before Python has run.
 * @param {Record<string, string>} [env]
 * @returns {Promise<Uint32Array>}
 */
async function memoryLaidOut(env) {
  const stopped = new Error("stopped before Python runs");
  const create = scope._createPyodideModule;
  /** @type {Uint32Array | undefined} */
  let words;
  scope._createPyodideModule = async (/** @type {any} */ settings) => {
    settings.noInitialRun = true;
    words = (await create(settings)).HEAPU32.slice();
    throw stopped;
  };
  try {
    await loadPyodide(options(env));
  } catch (error) {
    if (error !== stopped) throw error;
  } finally {
    scope._createPyodideModule = create;
  }
  return /** @type {Uint32Array} */ (words);
}

function importAndAnswer() {
  const site = python.runPython("import site; site.getsitepackages()[0]");
  python.unpackArchive(new Uint8Array(readFileSync(wheel)), "zip", { extractDir: site });
  python.globals.set("plan", readFileSync(plan, "utf8"));
  python.runPython(`
import functools, gc, importlib, json, linecache, pkgutil, re, sys, zipimport

# With a clock that stands still, a folder that was filled looks unchanged.
importlib.invalidate_caches()
from training_memory import web

plan = json.loads(plan)
for name in plan["imports"]:
    importlib.import_module(name)
import training_memory
for module in pkgutil.walk_packages(training_memory.__path__, "training_memory."):
    if not module.name.startswith(tuple(plan["not"])):
        importlib.import_module(module.name)
for request in plan["requests"]:
    web.answer(json.dumps(request))
from training_memory import film_door
for request in plan["films"]:
    turn = 0
    while not json.loads(film_door.answer(json.dumps({**request, "turn": turn})))["done"]:
        turn += 1

# What was remembered on the way would take longer to arrive than to be found again, but for what
# is remembered once and for all (what a file says, which no page has); what lies in which zip would
# be wrong.
for one in gc.get_objects():
    if isinstance(one, functools._lru_cache_wrapper) and (one.cache_parameters()["maxsize"] or 1) > 1:
        one.cache_clear()
del film_door, module, name, one, plan, request, training_memory, turn, web
linecache.clearcache()
re.purge()
sys.path_importer_cache.clear()
zipimport._zip_directory_cache.clear()
gc.collect()
# All of this stays; looking through it for garbage again and again would cost answers time. The
# worker looks through what is new after each answer, so that none needs to stop for it.
gc.freeze()
gc.set_threshold(20_000)
`);
}

/** Overwrite memory that is free with zeros: what lay there would travel along. */
function zeroWhatIsFree() {
  const module = python._module;
  const end = module._sbrk(0);
  const taken = [];
  // From large blocks to small, until each size would come from beyond what was ever used.
  for (let size = 1 << 20; size >= 8; size = size > 64 ? size >> 1 : size - 8) {
    for (;;) {
      const block = module._PyMem_RawMalloc(size);
      if (block === 0 || block >= end) {
        module._free(block);
        break;
      }
      module.HEAPU8.fill(0, block, block + module._malloc_usable_size(block));
      taken.push(block);
    }
  }
  for (const block of taken) module._free(block);
}

/**
 * A snapshot as a patch on what WebAssembly lays out.
 * @param {Uint8Array} snapshot
 */
function patch(snapshot) {
  const [, offset = 0] = new Uint32Array(snapshot.buffer, snapshot.byteOffset, 2);
  const words = new Uint32Array(snapshot.buffer, snapshot.byteOffset + offset);
  /** @type {number[]} */
  const runs = [];
  for (let at = 0; at < words.length; at++) {
    if (words[at] === (laidOut[at] ?? 0)) continue;
    if (runs.length > 0 && at - Number(runs.at(-1)) < LEAST_GAP) runs.pop();
    else runs.push(at);
    runs.push(at + 1);
  }
  const parts = [snapshot.subarray(0, offset), bytes([runs.length]), bytes(runs)];
  for (let at = 0; at < runs.length; at += 2) parts.push(bytes(words.subarray(runs[at], runs[at + 1])));
  return Buffer.concat(parts);
}

/** @param {number[] | Uint32Array} words */
function bytes(words) {
  const { buffer, byteOffset, byteLength } = Uint32Array.from(words);
  return new Uint8Array(buffer, byteOffset, byteLength);
}

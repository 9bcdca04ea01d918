// @ts-check
/**
 * The service worker: after a visit the whole site works without a network, from any of its pages.
 *
 * Short and ours rather than Workbox, whose recipes have no name for the two things that matter
 * here: that a version is kept whole or not at all, each file checked by its hash while it is
 * fetched, and that Python, twelve times the size of all else, is fetched only for readers who want
 * it.
 *
 * What the build says of the site is put before this text as `self.BUILT`; see build/offline.py.
 * A new version's worker waits until every page of the old one is gone, or until the reader of the
 * only page asks for it, so that no page ever gets files of two versions.
 */

/**
 * Files by their addresses from the root, with what `integrity` asks for and their bytes on the way.
 * @typedef {Record<string, {hash: string, bytes: number}>} Files
 */

/** What this version is made of.
 * @typedef {{version: string, site: Files, python: Files}} Built */

/** The worker's scope, for which TypeScript needs other declarations than for the pages. @type {any} */
const worker = self;
/** @type {Built} */
const BUILT = worker.BUILT;

const ROOT = /** @type {string} */ (worker.registration.scope);
// Sites under other paths of the same host have caches of their own.
const OURS = `training memory ${ROOT} `;
const SITE = `${OURS}site ${BUILT.version}`;
const PYTHON = `${OURS}python`;

worker.addEventListener("install", (/** @type {any} */ event) => {
  event.waitUntil(install());
});

worker.addEventListener("activate", (/** @type {any} */ event) => {
  event.waitUntil(forget());
});

worker.addEventListener("message", (/** @type {any} */ event) => {
  event.waitUntil(answer(event.data, event.ports[0]));
});

worker.addEventListener("fetch", (/** @type {any} */ event) => {
  const request = /** @type {Request} */ (event.request);
  if (request.method === "GET" && request.url.startsWith(ROOT)) {
    event.respondWith(found(request));
  }
});

/**
 * Keep all pages, and Python for readers who have it of the version before: that goes when this one
 * comes, and by then there may be no network to fetch another. Where a browser has no room for both,
 * Python is fetched again when it is used.
 */
async function install() {
  await keep(SITE, BUILT.site);
  if (!(await hadPython())) return;
  try {
    await keep(PYTHON, BUILT.python);
  } catch (error) {
    if (!(error instanceof DOMException && error.name === "QuotaExceededError")) throw error;
  }
}

/** How long the version that is shown now may take to say what it keeps. */
const PATIENCE_MS = 10_000;

/**
 * Whether the version that is shown now keeps Python. Where it does not say, anything of Python's
 * that lies there counts: to fetch it without need is better than to be without it.
 * @returns {Promise<boolean>}
 */
async function hadPython() {
  const { active } = worker.registration;
  if (!active) return false;
  const { port1, port2 } = new MessageChannel();
  const said = await new Promise((resolve) => {
    port1.onmessage = ({ data }) => resolve(data.python);
    setTimeout(resolve, PATIENCE_MS);
    active.postMessage({ ask: "version" }, [port2]);
  });
  return said ?? (await (await caches.open(PYTHON)).keys()).length > 0;
}

/**
 * Put every file into a cache, each whole and with the hash that the build gave it, or fail. What
 * an earlier try or another version has already is taken from there.
 * @param {string} name
 * @param {Files} files
 * @param {(bytes: number) => void} [told]
 */
async function keep(name, files, told) {
  const cache = await caches.open(name);
  const before = await hashes();
  const missing = [];
  for (const [path, { hash, bytes }] of Object.entries(files)) {
    const address = new URL(path, ROOT).href;
    const same = before.get(hash);
    if (await cache.match(address)) told?.(bytes);
    else if (same) await cache.put(address, marked(same.clone(), hash)).then(() => told?.(bytes));
    else missing.push({ address, hash, bytes });
  }
  const next = missing.values();
  const take = async () => {
    for (const { address, hash, bytes } of next) {
      // Pages keep their names: what the browser has of an earlier version must not stand in.
      const response = await fetch(address, { integrity: hash, cache: "no-cache" });
      if (!response.ok) throw new Error(`${address} could not be fetched (${response.status})`);
      await cache.put(address, marked(response, hash));
      told?.(bytes);
    }
  };
  // A few at a time leave room for what the page itself is fetching.
  await Promise.all([take(), take(), take()]);
}

const HASH = "x-kept-hash";

/**
 * The same response with its hash noted, so that the next version can tell what it has already.
 * @param {Response} response
 * @param {string} hash
 */
function marked(response, hash) {
  const headers = new Headers(response.headers);
  headers.set(HASH, hash);
  // What is kept is unpacked.
  headers.delete("content-encoding");
  headers.delete("content-length");
  return new Response(response.body, { status: 200, headers });
}

/** Responses of other versions, by their hashes. */
async function hashes() {
  /** @type {Map<string, Response>} */
  const found = new Map();
  for (const name of await caches.keys()) {
    if (!name.startsWith(OURS) || name === SITE) continue;
    const cache = await caches.open(name);
    for (const response of await cache.matchAll()) {
      found.set(response.headers.get(HASH) ?? "", response);
    }
  }
  found.delete("");
  return found;
}

/** Let go of what this version does not use: other versions whole, and Python's old files. */
async function forget() {
  for (const name of await caches.keys()) {
    if (name.startsWith(OURS) && name !== SITE && name !== PYTHON) await caches.delete(name);
  }
  const cache = await caches.open(PYTHON);
  const used = new Set(Object.keys(BUILT.python).map((path) => new URL(path, ROOT).href));
  for (const request of await cache.keys()) {
    if (!used.has(request.url)) await cache.delete(request);
  }
}

/**
 * Answer a request from this version alone; the network is asked only for what it does not have.
 * @param {Request} request
 * @returns {Promise<Response>}
 */
async function found(request) {
  const url = new URL(request.url);
  url.hash = url.search = "";
  url.pathname = url.pathname.replace(/\/index\.html$/, "/");
  const path = url.href.slice(ROOT.length);
  if (path in BUILT.python) {
    return (await keptIn(PYTHON, url.href)) ?? fetch(request);
  }
  const kept = await keptIn(SITE, url.href);
  if (kept) return kept;
  if (request.mode === "navigate" && `${path}/` in BUILT.site) {
    return Response.redirect(`${url.href}/`, 301);
  }
  try {
    return await fetch(request);
  } catch (error) {
    const missing = request.mode === "navigate" && (await keptIn(SITE, new URL("404.html", ROOT).href));
    if (missing) return new Response(missing.body, { status: 404, headers: missing.headers });
    throw error;
  }
}

/**
 * What a cache has for an address: nothing, too, where the browser refuses to look.
 * @param {string} name
 * @param {string} address
 */
async function keptIn(name, address) {
  try {
    return await (await caches.open(name)).match(address);
  } catch {
    return undefined;
  }
}

/**
 * Do what a page asks for, and tell it what came of it.
 * @param {{ask: "version" | "claim" | "python" | "update"}} message
 * @param {MessagePort | undefined} port
 */
async function answer({ ask }, port) {
  const say = (/** @type {Record<string, unknown>} */ message) => port?.postMessage(message);
  try {
    if (ask === "version") {
      const bytes = Object.values(BUILT.python).reduce((sum, file) => sum + file.bytes, 0);
      say({ version: BUILT.version, python: await hasPython(), bytes });
    }
    else if (ask === "claim") await worker.clients.claim();
    else if (ask === "python") {
      let loaded = 0;
      await keep(PYTHON, BUILT.python, (bytes) => say({ loaded: (loaded += bytes) }));
      say({ kept: true });
    } else if (ask === "update") {
      const all = await worker.clients.matchAll({ type: "window", includeUncontrolled: true });
      // Of a host's other sites, which it tells of too, none is in the way.
      const pages = all.filter((/** @type {{url: string}} */ { url }) => url.startsWith(ROOT));
      if (pages.length > 1) say({ others: pages.length - 1 });
      else await worker.skipWaiting();
    }
  } catch (error) {
    say({ failed: error instanceof Error ? error.message : String(error) });
  }
}

async function hasPython() {
  const cache = await caches.open(PYTHON);
  const kept = new Set((await cache.keys()).map(({ url }) => url));
  return Object.keys(BUILT.python).every((path) => kept.has(new URL(path, ROOT).href));
}

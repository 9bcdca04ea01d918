// @ts-check
/**
 * Keeps the site in the reader's browser, says so at the foot of every page, and offers what is new.
 * The pages are kept once the first one is there and idle; Python is kept too once the reader has
 * used it, or asks. Where a browser refuses to keep anything, everything else works as before.
 */

import { savesData } from "./near.js";
import { onEachPage } from "./pages.js";
import { ready } from "./runtime.js";

/** The site's root: this file is assets/HASH/calculator/offline.js in it. */
const ROOT = new URL("../../../", import.meta.url);

const WORDS = {
  pages: "These pages are kept in this browser and work without a network.",
  keeping: "Python is being kept as well: ",
  all: "This site is kept in this browser and works without a network, Python included.",
  failed: "Python could not be kept here: ",
  update: "There is a newer version of this site.",
  others: "Close this site's other tabs first: no two versions are shown at once.",
};

class Keeper {
  #line = document.createElement("div");
  #words = document.createElement("span");
  #button = document.createElement("button");
  /** What the button does now. @type {() => void} */
  #act = () => {};
  /** @type {ServiceWorkerRegistration | undefined} */
  #registration;
  #keeping = false;

  constructor() {
    this.#line.className = "offline-line";
    this.#line.hidden = true;
    this.#words.setAttribute("role", "status");
    this.#button.type = "button";
    this.#button.addEventListener("click", () => this.#act());
    this.#line.append(this.#words, " ", this.#button);
  }

  /** Show the line on the page that is shown now. */
  attach() {
    const foot = document.querySelector(".md-footer-meta__inner");
    if (foot && this.#line.parentElement !== foot) foot.append(this.#line);
  }

  async start() {
    try {
      const script = new URL("sw.js", ROOT);
      this.#registration = await navigator.serviceWorker.register(script, {
        scope: ROOT.href,
        updateViaCache: "none",
      });
    } catch {
      // Private windows, full disks and strict settings: the site is read as any other.
      return;
    }
    const registration = this.#registration;
    this.#watch(registration.installing);
    registration.addEventListener("updatefound", () => this.#watch(registration.installing));
    if (registration.waiting && registration.active) this.#offer(registration.waiting);
    else if (registration.active) await this.#kept(registration.active);
    void ready.then(() => this.#keepPython());
  }

  /** @param {ServiceWorker | null} worker */
  #watch(worker) {
    worker?.addEventListener("statechange", () => {
      if (worker.state === "activated") void this.#kept(worker);
      else if (worker.state === "installed" && this.#registration?.active) this.#offer(worker);
    });
  }

  /**
   * A version is kept whole.
   * @param {ServiceWorker} worker
   */
  async #kept(worker) {
    const { version, python, bytes } = await ask(worker, "version");
    // The first visit's page is taken over only if it is of the version that was kept.
    if (!navigator.serviceWorker.controller && version === VERSION) await ask(worker, "claim", false);
    if (this.#keeping) return;
    if (python) this.#say(WORDS.all);
    else {
      const size = (Number(bytes) / 1e6).toFixed(1);
      this.#say(WORDS.pages, `Keep Python too, ${size} MB`, () => void this.#keepPython());
    }
  }

  async #keepPython() {
    const worker = this.#registration?.active ?? (await navigator.serviceWorker.ready).active;
    if (worker === null || this.#keeping) return;
    const { python, bytes } = await ask(worker, "version");
    if (python) return;
    this.#keeping = true;
    const whole = (Number(bytes) / 1e6).toFixed(1);
    const answer = await ask(worker, "python", true, ({ loaded }) => {
      // After one file that fails others still arrive.
      if (loaded === undefined || !this.#keeping) return;
      this.#say(`${WORDS.keeping}${(Number(loaded) / 1e6).toFixed(1)} of ${whole} MB.`);
    });
    this.#keeping = false;
    if (answer.kept) this.#say(WORDS.all);
    else this.#say(`${WORDS.failed}${answer.failed}`, "Try again", () => void this.#keepPython());
  }

  /**
   * A newer version is kept whole, and waits.
   * @param {ServiceWorker} worker
   */
  #offer(worker) {
    navigator.serviceWorker.addEventListener("controllerchange", () => location.reload(), {
      once: true,
    });
    const show = async () => {
      const { others } = await ask(worker, "update", true);
      if (others) this.#say(`${WORDS.update} ${WORDS.others}`, "Show it", () => void show());
    };
    this.#say(WORDS.update, "Show it", () => void show());
  }

  /**
   * @param {string} words
   * @param {string} [label]  the button's; without it there is none
   * @param {() => void} [act]
   */
  #say(words, label, act = () => {}) {
    this.#line.hidden = false;
    this.#words.textContent = words;
    this.#button.hidden = label === undefined;
    this.#button.textContent = label ?? "";
    this.#act = act;
  }
}

/**
 * Ask a service worker something; see answer() in sw.js.
 * @param {ServiceWorker} worker
 * @param {string} what
 * @param {boolean} [waits]  whether there is an answer to wait for
 * @param {(progress: Record<string, unknown>) => void} [told]  hears what comes before the answer
 * @returns {Promise<Record<string, unknown>>}
 */
function ask(worker, what, waits = true, told = () => {}) {
  const { port1, port2 } = new MessageChannel();
  return new Promise((resolve) => {
    port1.onmessage = ({ data }) => {
      told(data);
      if (!("loaded" in data)) resolve(data);
    };
    worker.postMessage({ ask: what }, [port2]);
    if (!waits) resolve({});
  });
}

function shownVersion() {
  return document.querySelector('meta[name="tm-version"]')?.getAttribute("content");
}

/** The version whose scripts these are. */
const VERSION = shownVersion();
// A link followed within the page may lead to a newer one: its scripts are to come with it.
onEachPage(() => {
  if (shownVersion() !== VERSION) location.reload();
});

const keeps = "serviceWorker" in navigator && location.protocol !== "file:";
// Whoever wants to save data keeps what is kept already, and nothing is begun.
if (keeps && (navigator.serviceWorker.controller || !savesData())) {
  const keeper = new Keeper();
  onEachPage(() => keeper.attach());
  // What the reader came for goes first.
  const begin = () => setTimeout(() => void keeper.start(), 1000);
  if (document.readyState === "complete") begin();
  else addEventListener("load", begin, { once: true });
}

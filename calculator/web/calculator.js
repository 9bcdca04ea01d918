// @ts-check
/**
 * The calculators on a page: what the reader does goes to Python as it is, and what Python answers
 * is put in its place. No field and no formula is known here.
 */

import { Controls } from "./controls.js";
import { Died } from "./died.js";
import { Files } from "./files.js";
import { inDots } from "./picture.js";
import { morph } from "./morph.js";
import { startWhenNear } from "./near.js";
import { onEachPage } from "./pages.js";
import { Planner } from "./plan.js";
import { python } from "./runtime.js";
import { Work } from "./work.js";

/**
 * Python's answer to a request; see training_memory/web.py.
 * @typedef {object} Answer
 * @property {true} ok
 * @property {Record<string, string>} html
 * @property {Record<string, string>} text
 * @property {Record<string, string>} summaries
 * @property {Record<string, string>} fields
 * @property {Record<string, string>} notes
 * @property {string} state
 * @property {string[]} later  the parts that are still to be asked for
 * @property {string} unread  what the address said and Python did not understand
 */

/**
 * What Python says of a run that cannot be.
 * @typedef {object} Refusal
 * @property {false} ok
 * @property {{field: string, reason: string}[]} errors
 * @property {Record<string, string>} stepped  numbers as they were stepped to
 */

/** The door that writes files; see training_memory/export_door.py. */
const EXPORT_DOOR = "training_memory.export_door";

/** The door for what takes longer than an answer; see training_memory/later_door.py. */
const LATER_DOOR = "training_memory.later_door";

/** What takes longer and is worked out only where somebody looks: curves, and what switches change. */
const CURVES = "[data-curves]";
const SWITCHES = 'details[data-key="implementation"]';
/** What is told of it meanwhile; of parts their places say it. @type {Record<string, string>} */
const WORKS = {
  switches: "Working out what each switch changes",
  export: "Writing the file",
};
const FOLDS = `${CURVES}, ${SWITCHES}`;

/** How long nothing must change before it is told to a screen reader, and more is asked for. */
const SETTLED_MS = 600;

class Calculator {
  #section;
  #runtime;
  #controls;
  #died;
  #work;
  #left = new AbortController();

  /** The last answered state, as an address carries it, or the one that the address asks for. */
  #state;
  /** The state that what is shown belongs to. */
  #shown;
  /** The state in which the page was built. */
  #first;
  /** What was set and stepped since. @type {Map<string, string>} */
  #set = new Map();
  /** @type {Map<string, number>} */
  #steps = new Map();
  #asking = false;
  /** The parts of the answer that have not come yet. @type {string[]} */
  #missing = [];
  /** Counts what is asked for later: of an earlier state it is given up. */
  #later = 0;
  /**
   * The state of which a reader wanted no more: nothing that settles late may begin it again.
   * @type {string | undefined}
   */
  #stopped;
  /** What was looked at and is there. @type {Set<string>} */
  #there = new Set();
  /** Whether something changed since the last request was sent. */
  #changed = false;
  /** Counts files that are written: only the latest is saved. */
  #exports = 0;
  /** The parts as they were last put in their places. @type {Map<string, string>} */
  #parts = new Map();
  /** The last answer's texts, for the buttons. @type {Record<string, string> | undefined} */
  #text;
  /** Whether the next answer belongs in the history as a step of its own, in place, or not at all.
   * @type {"push" | "replace" | "keep"} */
  #history = "keep";
  /** The control that was changed last: a number typed digit by digit is one step of the history. */
  #last = "";
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #settling;
  /** @type {Planner | undefined} */
  #planner;

  /**
   * @param {HTMLElement} section
   * @param {boolean} addressed  whether the page's address carries this calculator's state
   */
  constructor(section, addressed) {
    this.#section = section;
    this.#state = this.#shown = this.#first = section.dataset.state ?? "";
    this.#runtime = python(JSON.parse(section.dataset.runtime ?? "{}"));
    const { signal } = this.#left;
    this.#controls = new Controls(section, signal, {
      set: (name, value, typed) => this.#onSet(name, value, typed),
      step: (name, by) => this.#onStep(name, by),
      act: (action, button) => this.#onAction(action, button),
    });
    const planner = section.querySelector("[data-planner]");
    if (planner instanceof HTMLElement) {
      this.#planner = new Planner(planner, this.#runtime, () => this.#state, signal);
    }
    this.#work = new Work(section, signal);
    this.#died = new Died(section, this.#runtime, signal, () => this.#state, this.#work);
    const files = section.querySelector('[data-key="files"]');
    if (files instanceof HTMLElement) {
      const { files: path } = JSON.parse(section.dataset.runtime ?? "{}");
      new Files(files, this.#runtime, path, () => this.#state, (state) => this.#onFiles(state), signal);
    }
    this.#runtime.watch((state) => this.#onRuntime(state), signal);
    startWhenNear(section, this.#runtime, signal);
    if (addressed) {
      const restore = () => this.#restore();
      addEventListener("popstate", restore, { signal });
      addEventListener("hashchange", restore, { signal });
      this.#restore();
    }
    this.addressed = addressed;
    const folded = (/** @type {Event} */ { target }) => {
      if (/** @type {HTMLElement} */ (target).matches(FOLDS)) this.#onFolded();
    };
    section.addEventListener("toggle", folded, { signal, capture: true });
  }

  /** Whether the page still shows it. */
  get isShown() {
    return this.#section.isConnected;
  }

  /** Let go of everything outside the section. */
  leave() {
    clearTimeout(this.#settling);
    this.#left.abort();
  }

  /** @param {import("./runtime.js").State} state */
  #onRuntime(state) {
    if (state.name === "idle") return;
    if (state.name === "loading") {
      this.#controls.enable();
      this.#controls.progress(state.share, this.#runtime.size);
    } else if (state.name === "ready") {
      this.#controls.status("ready");
      this.#changed = true;
      this.#ask();
    } else {
      this.#set.clear();
      this.#steps.clear();
      this.#controls.fail(state.reason);
      this.#show({ stale: "" });
    }
  }

  /**
   * What takes longer came into sight, or is looked at no more: what is under way is given up, and
   * begun again with what is still wanted.
   */
  #onFolded() {
    this.#later += 1;
    const idle = this.#runtime.state.name === "ready" && !this.#asking && !this.#changed;
    if (idle) this.#settle(true);
  }

  /** Take the state from the page's address, or the built one where the address has none. */
  #restore() {
    const hash = location.hash.slice(1);
    // Other fragments are places on the page.
    if (hash !== "" && !hash.includes("=")) return;
    const state = hash || this.#first;
    if (state === this.#state && this.#set.size + this.#steps.size === 0) return;
    this.#set.clear();
    this.#steps.clear();
    this.#state = state;
    this.#history = "keep";
    this.#last = "";
    this.#request();
  }

  /**
   * A reader's files mean this state.
   * @param {string} state
   */
  #onFiles(state) {
    this.#set.clear();
    this.#steps.clear();
    this.#state = state;
    this.#history = "keep";
    this.#last = "";
    if (this.addressed) {
      history.pushState(history.state ?? { x: scrollX, y: scrollY }, "", `#${state}`);
    }
    this.#request();
  }

  /**
   * @param {string} name
   * @param {string} value
   * @param {boolean} typed
   */
  #onSet(name, value, typed) {
    if (name === "preset") {
      // It fills everything, also what could not be.
      this.#set.clear();
      this.#steps.clear();
    }
    this.#set.delete(name); // so that the latest comes last
    this.#set.set(name, value);
    this.#steps.delete(name);
    this.#remember(name, typed);
    this.#request();
  }

  /**
   * @param {string} name
   * @param {number} by
   */
  #onStep(name, by) {
    this.#steps.set(name, (this.#steps.get(name) ?? 0) + by);
    this.#remember(name, true);
    this.#request();
  }

  /**
   * @param {string} name
   * @param {boolean} joins  whether changes of this control in a row are one step of the history
   */
  #remember(name, joins) {
    if (!joins || this.#last !== name) this.#history = "push";
    else if (this.#history === "keep") this.#history = "replace";
    this.#last = name;
  }

  /**
   * @param {string} action
   * @param {HTMLElement} button
   */
  async #onAction(action, button) {
    if (action === "retry") {
      this.#runtime.start();
    } else if (action === "reset") {
      const preset = new URLSearchParams(this.#state).get("preset");
      const first = new URLSearchParams(this.#first).get("preset");
      const isKnown = this.#section.querySelector(`[data-preset="${CSS.escape(preset ?? "")}"]`) !== null;
      this.#onSet("preset", (isKnown ? preset : first) ?? "", false);
    } else if (action === "link") {
      const link = new URL(location.href);
      link.hash = this.#state;
      this.#controls.copy(link.href, button);
    } else if (this.#text === undefined) {
      this.#runtime.start();
      this.#controls.say("This waits for Python, which is on its way.");
    } else if (action === "command") {
      this.#controls.copy(this.#text.command ?? "", button);
    } else if (action === "export") {
      await this.#export(button.dataset.format ?? "");
    }
  }

  /**
   * Have Python write a file, and save it.
   * @param {string} format
   */
  async #export(format) {
    const page = new URL(location.href);
    page.hash = "";
    // A picture in dots is the drawn one, at twice its size.
    const asked = format === "png" ? "svg" : format;
    const prefix = this.#section.id;
    const request = { state: this.#state, format: asked, page: page.href, prefix };
    const number = (this.#exports += 1);
    const task = this.#work.begin(WORKS.export ?? "", {
      stop: () => (this.#exports += 1),
      again: () => this.#export(format),
    });
    try {
      let answer;
      for await (answer of this.#runtime.slices(request, EXPORT_DOOR)) {
        if (this.#left.signal.aborted || number !== this.#exports) return;
      }
      if (!answer.ok) throw new Error(answer.said);
      if (format === "png") {
        const blob = await inDots(answer.text);
        this.#controls.download(blob, answer.name.replace(/svg$/, "png"));
      } else {
        this.#controls.download(new Blob([answer.text], { type: answer.kind }), answer.name);
      }
    } catch (error) {
      this.#controls.say(`Nothing was saved: ${error instanceof Error ? error.message : error}`);
    } finally {
      task.end();
    }
  }

  /** Something changed: have it answered now, or as soon as Python is ready. */
  #request() {
    this.#changed = true;
    this.#later += 1;
    this.#died.giveUp();
    this.#work.forget();
    clearTimeout(this.#settling);
    // Nothing is on its way: it is answered should the reader have Python tried again.
    if (this.#runtime.state.name === "failed") return;
    this.#section.querySelector("output")?.setAttribute("aria-busy", "true");
    if (this.#runtime.state.name === "ready") this.#ask();
    else {
      this.#show({ stale: "waiting" });
      if (this.#runtime.state.name === "idle") this.#runtime.start();
    }
  }

  /** Ask for the latest; what changes meanwhile is asked together when the answer is there. */
  async #ask() {
    if (this.#asking) return;
    this.#asking = true;
    this.#changed = false;
    const set = new Map(this.#set);
    const steps = new Map(this.#steps);
    const request = JSON.stringify({
      state: this.#state,
      set: Object.fromEntries(set),
      step: Object.fromEntries(steps),
      prefix: this.#section.id,
    });
    try {
      /** @type {Answer | Refusal} */
      const answer = JSON.parse(await this.#runtime.ask(request));
      this.#asking = false;
      // Only the latest request's answer is shown, and an answer to a page that was left, nowhere.
      if (this.#left.signal.aborted) return;
      if (this.#changed) {
        this.#ask();
        return;
      }
      if (answer.ok) this.#take(answer, set, steps);
      else this.#refuse(answer);
      // A run that is pinned stands beside the answer, which need not settle for it.
      if (answer.ok && answer.later.includes("difference")) this.#askLater(["difference"]).catch(() => {});
      this.#settle(answer.ok);
    } catch (error) {
      this.#asking = false;
      // A start that failed has said so itself.
      if (this.#left.signal.aborted || this.#runtime.state.name === "failed") return;
      // What changed meanwhile may well have an answer.
      if (this.#changed) {
        this.#ask();
        return;
      }
      this.#controls.say(`Python gave no answer: ${error instanceof Error ? error.message : error}`);
      this.#show({ stale: "refused" });
    }
  }

  /**
   * Ask for what takes longer than an answer, a slice at a time, until something changes. What the
   * reader does meanwhile waits for no more than one slice.
   */
  async #askLater(/** @type {string[]} */ parts) {
    const later = ++this.#later;
    const request = { state: this.#state, parts, prefix: this.#section.id };
    const wanted = [...parts];
    const task = this.#work.begin(this.#workOn(wanted), {
      stop: () => this.#stopLater(),
      again: () => {
        this.#stopped = undefined;
        this.#askRest().catch(() => {});
      },
    });
    try {
      for await (const told of this.#runtime.slices(request, LATER_DOOR)) {
        if (this.#left.signal.aborted || later !== this.#later || !told.ok) return;
        this.#place(told.html);
        this.#missing = this.#missing.filter((part) => !(part in told.html));
        this.#controls.note(told.notes);
        // They come in their order.
        while (wanted[0] !== undefined && wanted[0] in told.html) wanted.shift();
        if (!told.done) task.say(this.#workOn(wanted));
        else for (const part of parts) this.#there.add(part);
      }
    } finally {
      task.end();
    }
  }

  /** @param {string[]} parts  what is wanted, the next first */
  #workOn([part = ""]) {
    const place = this.#section.querySelector(`[data-part="${part}"]`);
    return WORKS[part] ?? /** @type {HTMLElement | null} */ (place)?.dataset.work ?? "Working";
  }

  /** The reader wants no more of what takes longer; what is there of it is of the run before. */
  #stopLater() {
    this.#later += 1;
    this.#stopped = this.#shown;
    for (const place of this.#section.querySelectorAll('[data-part][aria-busy="true"]')) {
      place.removeAttribute("aria-busy");
      /** @type {HTMLElement} */ (place).dataset.old = "";
    }
  }

  /** Nothing has changed for a while: what is missing of the answer, and what is looked at. */
  async #askRest() {
    const parts = [...this.#missing];
    const open = (/** @type {string} */ fold) => this.#section.querySelector(`${fold}[open]`) !== null;
    if (open(CURVES) && !this.#there.has("curves")) parts.push("curves");
    if (open(SWITCHES) && !this.#there.has("switches")) parts.push("switches");
    this.#died.again();
    if (parts.length > 0) await this.#askLater(parts);
  }

  /**
   * @param {Answer} answer
   * @param {Map<string, string>} set
   * @param {Map<string, number>} steps
   */
  #take(answer, set, steps) {
    const moved = answer.state !== this.#state;
    this.#state = answer.state;
    this.#text = answer.text;
    this.#set.clear();
    this.#steps.clear();
    const hadFocus = this.#section.contains(document.activeElement);
    this.#place(answer.html, answer.state !== this.#shown);
    this.#missing = answer.later;
    this.#there.clear();
    if (answer.state !== this.#shown) this.#planner?.changed();
    this.#shown = answer.state;
    // A button that its own effect took away hands the focus on to what it brought about.
    if (hadFocus && !this.#section.contains(document.activeElement)) {
      this.#section.querySelector("output")?.focus({ preventScroll: true });
    }
    this.#controls.fill(answer, set, steps);
    this.#show({ stale: "" });
    this.#controls.status("ready", answer.unread || undefined);
    if (this.addressed && moved && this.#history !== "keep") {
      const place = history.state ?? { x: scrollX, y: scrollY };
      // The theme keeps the place scrolled to in the history's state.
      if (this.#history === "push") history.pushState(place, "", `#${this.#state}`);
      else history.replaceState(place, "", `#${this.#state}`);
    }
    this.#history = "keep";
  }

  /**
   * Put parts in their places.
   * @param {Record<string, string>} parts
   * @param {boolean} [whole]  whether the others are another state's until they come
   */
  #place(parts, whole = false) {
    for (const place of this.#section.querySelectorAll("[data-part]")) {
      const part = /** @type {HTMLElement} */ (place).dataset.part ?? "";
      const html = parts[part];
      if (html === undefined) {
        if (whole && place.hasChildNodes()) place.setAttribute("aria-busy", "true");
        continue;
      }
      delete /** @type {HTMLElement} */ (place).dataset.old;
      // The output is busy until everything has settled.
      if (place.tagName !== "OUTPUT") place.removeAttribute("aria-busy");
      if (html === this.#parts.get(part)) continue;
      morph(place, html);
      this.#parts.set(part, html);
    }
  }

  /** @param {Refusal} refusal */
  #refuse(refusal) {
    // A number stepped to what cannot be is from now on as if it had been typed.
    for (const [name, value] of Object.entries(refusal.stepped)) this.#set.set(name, value);
    this.#steps.clear();
    this.#controls.refuse(refusal.errors, refusal.stepped);
    this.#show({ stale: "refused" });
  }

  /** @param {boolean} answered */
  #settle(answered) {
    clearTimeout(this.#settling);
    this.#settling = setTimeout(() => {
      this.#section.querySelector("output")?.removeAttribute("aria-busy");
      // What of it cannot be had is missing; the answer is there.
      const wanted = answered && this.#stopped !== this.#shown;
      if (wanted && !this.#changed && !this.#asking) this.#askRest().catch(() => {});
    }, SETTLED_MS);
  }

  /** @param {{stale: "" | "waiting" | "refused"}} what */
  #show({ stale }) {
    if (stale) this.#section.dataset.stale = stale;
    else delete this.#section.dataset.stale;
  }
}

/** @type {Calculator[]} */
let calculators = [];

/** Take over the calculators of the page that is shown now. */
function attach() {
  for (const calculator of calculators) if (!calculator.isShown) calculator.leave();
  calculators = calculators.filter((calculator) => calculator.isShown);
  const sections = document.querySelectorAll(".tm[data-runtime]");
  // A page has one address: it is the first whole calculator's, not that of small live views.
  const addressed = document.querySelector(".tm[data-runtime]:not(.tm-small)");
  for (const section of sections) {
    if (!(section instanceof HTMLElement) || section.dataset.attached !== undefined) continue;
    section.dataset.attached = "";
    calculators.push(new Calculator(section, section === addressed));
  }
}

onEachPage(attach);

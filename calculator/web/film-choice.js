// @ts-check
/**
 * Which films are shown: those built into the page, and any run's, made by Python when the reader
 * changes something. No field is known here but "beside", the second run's recomputation.
 */

import { Controls } from "./controls.js";
import { find } from "./film.js";
import { python } from "./runtime.js";
import { Work } from "./work.js";

/** @typedef {import("./film.js").Film} Film */

/**
 * Python's answer; see training_memory/film_door.py.
 * @typedef {object} Answer
 * @property {true} ok
 * @property {Film[]} films
 * @property {Record<string, string>} html
 * @property {Record<string, string>} fields
 * @property {Record<string, string>} notes
 * @property {Record<string, string>} text
 * @property {Record<string, string>} summaries
 * @property {string} state
 */

/**
 * @typedef {object} Refusal
 * @property {false} ok
 * @property {{field: string, reason: string}[]} errors
 * @property {Record<string, string>} stepped  numbers as they were stepped to
 */

/** The Python module that makes them. */
const DOOR = "training_memory.film_door";
const WORDS = { making: "Making the film", stopped: "Stopped: the film is of the run before." };

const BESIDE = "beside";
/** How fast it plays is no business of Python's. */
const SPEED = "speed";

export class FilmChoice {
  #section;
  #take;
  #signal;
  #runtime;
  #controls;
  /** The films on the page; the second may be out of sight. @type {Film[]} */
  #films;
  /** The second film's recomputation, whether in sight or not. */
  #second;
  /** The last answered state, as an address carries it. */
  #state;
  /** @type {Map<string, string>} */
  #set = new Map();
  /** @type {Map<string, number>} */
  #steps = new Map();
  /** Whether the reader did something that needs Python. */
  #wanted = false;
  /** Whether something changed that has not been asked for. */
  #changed = false;
  /** Counts what is asked for: only the latest is answered. */
  #number = 0;
  #work;

  /**
   * @param {HTMLElement} section
   * @param {Film[]} films  those built into the page
   * @param {(films: Film[]) => void} take  shows films whose drawings are on the page
   * @param {AbortSignal} signal
   */
  constructor(section, films, take, signal) {
    this.#section = section;
    this.#films = films;
    this.#take = take;
    this.#signal = signal;
    this.#state = section.dataset.state ?? "";
    this.#second = section.dataset.second ?? "";
    this.#runtime = python(JSON.parse(section.dataset.python ?? "{}"));
    this.#controls = new Controls(section, signal, {
      set: (name, value) => this.#onSet(name, value),
      step: (name, by) => this.#onStep(name, by),
      act: (action) => {
        if (action === "retry") this.#runtime.start();
      },
    });
    this.#work = new Work(section, signal, WORDS.stopped);
    this.#runtime.watch((state) => this.#onRuntime(state), signal);
    this.#showBeside();
    const address = location.hash.slice(1);
    // A fragment without "=" is a place on the page.
    if (address.includes("=")) {
      this.#state = address;
      this.#request();
    }
  }

  /** What the second run recomputes; "" for no second run. */
  get #beside() {
    return /** @type {HTMLSelectElement} */ (find(this.#section, "select[name=beside]")).value;
  }

  /** @param {import("./runtime.js").State} state */
  #onRuntime(state) {
    if (!this.#wanted) return;
    if (state.name === "loading") {
      this.#controls.enable();
      this.#controls.progress(state.share, this.#runtime.size);
    } else if (state.name === "ready") {
      this.#controls.status("ready");
      if (this.#changed) this.#ask();
    } else if (state.name === "failed") {
      this.#set.clear();
      this.#steps.clear();
      this.#changed = false;
      this.#controls.fail(state.reason);
      this.#showBeside();
    }
  }

  /**
   * @param {string} name
   * @param {string} value
   */
  #onSet(name, value) {
    if (name === SPEED) return;
    const isHere = name === BESIDE && (value === "" || value === this.#second);
    if (isHere && this.#set.size + this.#steps.size === 0) {
      this.#number += 1;
      this.#work.forget();
      this.#showBeside();
      return;
    }
    if (name !== BESIDE) {
      this.#set.delete(name); // so that the latest comes last
      this.#set.set(name, value);
      this.#steps.delete(name);
    }
    this.#request();
  }

  /**
   * @param {string} name
   * @param {number} by
   */
  #onStep(name, by) {
    this.#steps.set(name, (this.#steps.get(name) ?? 0) + by);
    this.#request();
  }

  #request() {
    this.#changed = true;
    this.#wanted = true;
    if (this.#runtime.state.name === "ready") this.#ask();
    else this.#runtime.start();
  }

  async #ask() {
    this.#changed = false;
    const number = (this.#number += 1);
    const set = new Map(this.#set);
    const steps = new Map(this.#steps);
    const beside = this.#beside;
    const request = {
      state: this.#state,
      set: Object.fromEntries(set),
      step: Object.fromEntries(steps),
      beside,
      prefix: this.#section.id,
    };
    const task = this.#work.begin(WORDS.making, {
      stop: () => (this.#number += 1),
      again: () => this.#request(),
    });
    try {
      for await (const told of this.#runtime.slices(request, DOOR)) {
        if (this.#signal.aborted || number !== this.#number) return;
        if (!told.ok) this.#refuse(told);
        else if (told.done) this.#show(told, beside, set, steps);
      }
    } catch (error) {
      if (this.#signal.aborted || number !== this.#number) return;
      this.#controls.say(`Python gave no answer: ${error instanceof Error ? error.message : error}`);
    } finally {
      task.end();
    }
  }

  /**
   * @param {Answer} answer
   * @param {string} beside
   * @param {Map<string, string>} set
   * @param {Map<string, number>} steps
   */
  #show(answer, beside, set, steps) {
    this.#state = answer.state;
    this.#set.clear();
    this.#steps.clear();
    for (const place of this.#section.querySelectorAll("[data-part]")) {
      const html = answer.html[/** @type {HTMLElement} */ (place).dataset.part ?? ""];
      if (html !== undefined) place.innerHTML = html;
    }
    this.#films = answer.films;
    this.#second = answer.films.length > 1 ? beside : "";
    this.#controls.fill(answer, set, steps);
    this.#controls.enable();
    this.#controls.status("ready");
    this.#showBeside();
    const place = history.state ?? { x: scrollX, y: scrollY };
    // The theme keeps the place scrolled to in the history's state.
    if (location.hash.slice(1) !== this.#state) history.replaceState(place, "", `#${this.#state}`);
  }

  /** @param {Refusal} refusal */
  #refuse(refusal) {
    // A number stepped to what cannot be is from now on as if it had been typed.
    for (const [name, value] of Object.entries(refusal.stepped)) this.#set.set(name, value);
    this.#steps.clear();
    this.#controls.refuse(refusal.errors, refusal.stepped);
  }

  /** Show one film or both, as the reader wants it. */
  #showBeside() {
    const count = this.#films.length > 1 && this.#beside !== "" ? 2 : 1;
    this.#section.dataset.count = String(count);
    this.#take(this.#films.slice(0, count));
  }
}

// @ts-check
/** The place for the error of a job that died: what is pasted goes to Python, and its answer beside it. */

import { morph } from "./morph.js";

/** How long nothing must change before a text that is typed or pasted is read. */
const WAITS_MS = 250;

/** The Python module that reads it; see training_memory/oom_door.py. */
const DOOR = "training_memory.oom_door";
const WORDS = "Looking for the tensor";

export class Died {
  #area;
  #place;
  #section;
  #state;
  #runtime;
  #signal;
  #work;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #waiting;
  /** Which question is the latest. */
  #number = 0;
  /** The question that has its answer. */
  #answered = "";

  /**
   * @param {HTMLElement} section
   * @param {import("./runtime.js").Runtime} runtime
   * @param {AbortSignal} signal
   * @param {() => string} state  the state that is shown, as an address carries it
   * @param {import("./work.js").Work} work
   */
  constructor(section, runtime, signal, state, work) {
    this.#section = section;
    this.#runtime = runtime;
    this.#signal = signal;
    this.#state = state;
    this.#work = work;
    this.#area = section.querySelector("textarea[data-error]");
    this.#place = /** @type {HTMLElement | null} */ (section.querySelector("[data-died]"));
    this.#area?.addEventListener("input", () => this.#onInput(), { signal });
    signal.addEventListener("abort", () => clearTimeout(this.#waiting));
  }

  #onInput() {
    this.giveUp();
    clearTimeout(this.#waiting);
    this.#waiting = setTimeout(() => this.again(), WAITS_MS);
    if (this.#runtime.state.name === "idle") this.#runtime.start();
    this.#place?.setAttribute("aria-busy", "true");
  }

  /** Another run is asked for: it is explained by that one, once there is its answer. */
  giveUp() {
    this.#number += 1;
  }

  /** Have the text explained by the run that is shown now, if there is a text and somebody to ask. */
  async again() {
    const error = /** @type {HTMLTextAreaElement | null} */ (this.#area)?.value ?? "";
    if (this.#place === null || this.#runtime.state.name !== "ready") return;
    if (error.trim() === "" && !this.#place.hasChildNodes()) return;
    const request = { state: this.#state(), error, prefix: this.#section.id };
    const question = JSON.stringify(request);
    if (question === this.#answered) {
      this.#place.removeAttribute("aria-busy");
      return;
    }
    const number = (this.#number += 1);
    const isOld = () => this.#signal.aborted || number !== this.#number;
    const task = this.#work.begin(WORDS, {
      stop: () => this.#stop(),
      again: () => this.again(),
    });
    this.#place.setAttribute("aria-busy", "true");
    delete this.#place.dataset.old;
    try {
      for await (const told of this.#runtime.slices(request, DOOR)) {
        if (isOld()) return;
        if (told.ok && !told.done) continue;
        this.#answered = question;
        if (told.ok) morph(this.#place, told.html);
      }
    } catch (reason) {
      if (isOld()) return;
      const words = reason instanceof Error ? reason.message : reason;
      this.#place.textContent = `Python gave no answer: ${words}`;
    } finally {
      task.end();
    }
    this.#place.removeAttribute("aria-busy");
  }

  #stop() {
    this.giveUp();
    this.#place?.removeAttribute("aria-busy");
    if (this.#place) this.#place.dataset.old = "";
  }
}

// @ts-check
/** The place for the error of a job that died: what is pasted goes to Python, and its answer beside it. */

import { morph } from "./morph.js";

/** How long nothing must change before a text that is typed or pasted is read. */
const WAITS_MS = 250;

/** The Python module's door that reads it; see training_memory/oom_door.py. */
const DOOR = "oom";

export class Died {
  #area;
  #place;
  #section;
  #state;
  #runtime;
  #signal;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #waiting;
  /** Which question is the latest. */
  #number = 0;

  /**
   * @param {HTMLElement} section
   * @param {import("./runtime.js").Runtime} runtime
   * @param {AbortSignal} signal
   * @param {() => string} state  the state that is shown, as an address carries it
   */
  constructor(section, runtime, signal, state) {
    this.#section = section;
    this.#runtime = runtime;
    this.#signal = signal;
    this.#state = state;
    this.#area = section.querySelector("textarea[data-error]");
    this.#place = section.querySelector("[data-died]");
    this.#area?.addEventListener("input", () => this.#onInput(), { signal });
    signal.addEventListener("abort", () => clearTimeout(this.#waiting));
  }

  #onInput() {
    clearTimeout(this.#waiting);
    this.#waiting = setTimeout(() => this.again(), WAITS_MS);
    if (this.#runtime.state.name === "idle") this.#runtime.start();
    this.#place?.setAttribute("aria-busy", "true");
  }

  /** Have the text explained by the run that is shown now, if there is a text and somebody to ask. */
  async again() {
    const error = /** @type {HTMLTextAreaElement | null} */ (this.#area)?.value ?? "";
    if (this.#place === null || this.#runtime.state.name !== "ready") return;
    if (error.trim() === "" && !this.#place.hasChildNodes()) return;
    const number = (this.#number += 1);
    const request = { door: DOOR, state: this.#state(), error, prefix: this.#section.id };
    try {
      /** @type {{ok: boolean, html?: Record<string, string>}} */
      const answer = JSON.parse(await this.#runtime.ask(JSON.stringify(request)));
      if (this.#signal.aborted || number !== this.#number) return;
      if (answer.ok) morph(this.#place, answer.html?.died ?? "");
    } catch (reason) {
      if (this.#signal.aborted || number !== this.#number) return;
      const words = reason instanceof Error ? reason.message : String(reason);
      this.#place.textContent = `Python gave no answer: ${words}`;
    }
    this.#place.removeAttribute("aria-busy");
  }
}

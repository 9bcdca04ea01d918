// @ts-check
/**
 * The planner: has Python look for the cheapest plan that fits, slice by slice, tells how far it is,
 * and gives up when it is told to or when the run changes.
 */

import { morph } from "./morph.js";

/** The Python module that looks; see training_memory/plan_door.py. */
const DOOR = "training_memory.plan_door";

/**
 * @typedef {{ok: false, said: string}
 *   | {ok: true, done: boolean, said: string, html?: string}} Told  html: what is found so far
 */

export class Planner {
  #root;
  #runtime;
  #state;
  #signal;
  /** Counts searches: what belongs to an earlier one is thrown away. */
  #search = 0;
  #busy = false;

  /**
   * @param {HTMLElement} root
   * @param {import("./runtime.js").Runtime} runtime
   * @param {() => string} state  the run that is shown, as an address carries it
   * @param {AbortSignal} signal  says that the page is left
   */
  constructor(root, runtime, state, signal) {
    this.#root = root;
    this.#runtime = runtime;
    this.#state = state;
    this.#signal = signal;
    root.addEventListener("click", (event) => this.#onClick(event), { signal });
    root.addEventListener("keydown", (event) => this.#onKey(event), { signal });
    signal.addEventListener("abort", () => (this.#search += 1));
  }

  /** Another run is shown: what was found is of the one before. */
  changed() {
    const had = this.#busy || this.#found.childElementCount > 0;
    this.#end();
    this.#found.replaceChildren();
    if (had) this.#say("The run has changed, and what was found with it.");
  }

  /** @param {Event} event */
  #onClick(event) {
    if (!(event.target instanceof Element)) return;
    const wanted = event.target.closest("button")?.dataset.plan;
    if (wanted === "find") this.#find();
    else if (wanted === "stop") {
      this.#end();
      this.#say("Stopped.");
    }
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    if (event.key !== "Enter" || !(event.target instanceof HTMLInputElement)) return;
    event.preventDefault();
    this.#find();
  }

  async #find() {
    const search = ++this.#search;
    this.#begin();
    try {
      await this.#runtime.started(this.#signal);
      const state = this.#state();
      for (let turn = 0; search === this.#search; turn += 1) {
        const request = JSON.stringify({
          state,
          gpus: this.#typed("[data-plan-gpus]"),
          batch: this.#typed("[data-plan-batch]"),
          allow: this.#allowed(),
          turn,
        });
        /** @type {Told} */
        const told = JSON.parse(await this.#runtime.ask(request, DOOR));
        if (search !== this.#search) return;
        if (!told.ok || told.done) this.#end();
        if (told.ok && told.html !== undefined) morph(this.#found, told.html);
        this.#say(told.said);
      }
    } catch (error) {
      if (search !== this.#search) return;
      this.#end();
      this.#say(`No plan was found: ${error instanceof Error ? error.message : error}`);
    }
  }

  #begin() {
    this.#busy = true;
    this.#found.replaceChildren();
    this.#button("stop").hidden = false;
    this.#say("Looking …");
  }

  #end() {
    this.#search += 1;
    this.#busy = false;
    this.#button("stop").hidden = true;
  }

  /** @param {string} words */
  #say(words) {
    const place = this.#place("[data-plan-said]");
    if (place.textContent !== words) place.textContent = words;
  }

  /** @param {string} selector */
  #typed(selector) {
    return /** @type {HTMLInputElement} */ (this.#place(selector)).value;
  }

  /** What of the training a plan may change. */
  #allowed() {
    const boxes = this.#root.querySelectorAll("[data-plan-allow]:checked");
    return [...boxes].map((box) => /** @type {HTMLElement} */ (box).dataset.planAllow);
  }

  /** @param {string} wanted */
  #button(wanted) {
    return this.#place(`[data-plan="${wanted}"]`);
  }

  get #found() {
    return this.#place("[data-plan-found]");
  }

  /** @param {string} selector */
  #place(selector) {
    return /** @type {HTMLElement} */ (this.#root.querySelector(selector));
  }
}

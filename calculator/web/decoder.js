// @ts-check
/**
 * The Decoder, run in the page: nothing is fetched and nothing runs before its button is pressed.
 * Python does one piece of the run for each request and says what to show; see decoder_door.py.
 */

import { morph } from "./morph.js";
import { onEachPage } from "./pages.js";
import { python } from "./runtime.js";

/**
 * What a piece of the run has to show.
 * @typedef {object} Piece
 * @property {true} ok
 * @property {number} run
 * @property {number} share  how much of the run is done, 0 to 1
 * @property {string} said
 * @property {string} progress
 * @property {Record<string, string>} html
 * @property {boolean} done
 */

/**
 * What Python says of a run that cannot be.
 * @typedef {object} Refusal
 * @property {false} ok
 * @property {{field: string, reason: string}[]} errors
 */

const DOOR = "decoder_door";

const WORDS = {
  again: "Run it again",
  fetching: "Python is here; the trainer's sources follow.",
  loading: "Loading Python, once.",
  refused: "This cannot be run: see above.",
  stopped: "Stopped by you before it began.",
};

class Run {
  #section;
  #form;
  #runtime;
  #package;
  /** What the page says of its own run; Python reads it. */
  #page;
  #left = new AbortController();
  /** Lets go of the run that goes on. @type {AbortController | undefined} */
  #stop;

  /** @param {HTMLElement} section */
  constructor(section) {
    this.#section = section;
    this.#form = /** @type {HTMLFormElement} */ (section.querySelector("form"));
    this.#runtime = python(JSON.parse(section.dataset.python ?? "{}"));
    this.#package = section.dataset.package ?? "";
    this.#page = JSON.parse(section.dataset.page ?? "{}");
    const { signal } = this.#left;
    this.#form.addEventListener("submit", (event) => this.#onSubmit(event), { signal });
    this.#button(".runner-stop").addEventListener("click", () => this.#stop?.abort(), { signal });
    this.#element("fieldset").removeAttribute("disabled");
  }

  /** Whether the page still shows it. */
  get isShown() {
    return this.#section.isConnected;
  }

  /** Stop, and let go of everything outside the section. */
  leave() {
    this.#left.abort();
    this.#stop?.abort();
  }

  /** @param {SubmitEvent} event */
  async #onSubmit(event) {
    event.preventDefault();
    if (this.#stop !== undefined) return;
    const stop = new AbortController();
    this.#stop = stop;
    this.#running(true);
    try {
      await this.#start(stop.signal);
      await this.#run(stop.signal);
    } catch (error) {
      if (!stop.signal.aborted) this.#failed(error instanceof Error ? error.message : `${error}`);
      else this.#say(WORDS.stopped);
    }
    this.#stop = undefined;
    if (!this.#left.signal.aborted) this.#running(false);
  }

  /**
   * Have Python and the trainer here.
   * @param {AbortSignal} signal
   */
  async #start(signal) {
    const loading = new AbortController();
    const whole = (this.#runtime.size / 1e6).toFixed(1);
    this.#runtime.watch((state) => {
      if (state.name !== "loading") return;
      this.#say(WORDS.loading);
      const loaded = ((state.share * this.#runtime.size) / 1e6).toFixed(1);
      this.#progress(state.share, `${loaded} of ${whole} MB`);
    }, loading.signal);
    try {
      await this.#runtime.started(signal);
    } finally {
      loading.abort();
    }
    this.#say(WORDS.fetching);
    this.#progress(0, "");
    await this.#runtime.use(this.#package);
    signal.throwIfAborted();
  }

  /** @param {AbortSignal} signal */
  async #run(signal) {
    const chosen = Object.fromEntries(new FormData(this.#form));
    const begin = { do: "begin", page: this.#page, ...chosen };
    let piece = await this.#ask(begin);
    if (!piece.ok) {
      this.#refuse(piece);
      return;
    }
    this.#refuse({ ok: false, errors: [] });
    this.#element(".runner-result").hidden = false;
    for (;;) {
      this.#show(piece);
      if (piece.done) break;
      const what = signal.aborted ? "stop" : "next";
      let next = await this.#ask({ do: what, run: piece.run });
      // Python broke and was started again, and has forgotten the run: the same one once more.
      if (!next.ok) next = await this.#ask(begin);
      piece = /** @type {Piece} */ (next);
      if (this.#left.signal.aborted) return;
    }
    this.#button(".runner-go").textContent = WORDS.again;
  }

  /**
   * @param {object} request
   * @returns {Promise<Piece | Refusal>}
   */
  async #ask(request) {
    return JSON.parse(await this.#runtime.ask(JSON.stringify(request), DOOR));
  }

  /** @param {Piece} piece */
  #show(piece) {
    this.#say(piece.said);
    this.#progress(piece.share, piece.progress);
    for (const [name, html] of Object.entries(piece.html)) {
      const place = this.#element(`[data-part="${name}"]`);
      morph(place, html);
      const fold = place.closest("details");
      if (fold) fold.hidden = html === "";
    }
  }

  /** @param {Refusal} refusal */
  #refuse({ errors }) {
    const reasons = new Map(errors.map(({ field, reason }) => [field, reason]));
    for (const field of this.#section.querySelectorAll("[data-field]")) {
      const reason = reasons.get(/** @type {HTMLElement} */ (field).dataset.field ?? "");
      const note = field.querySelector(".tm-note");
      if (note) note.textContent = reason ?? "";
      note?.classList.toggle("tm-bad", reason !== undefined);
      const control = field.querySelector("select, input");
      if (reason === undefined) control?.removeAttribute("aria-invalid");
      else control?.setAttribute("aria-invalid", "true");
    }
    if (errors.length) this.#say(WORDS.refused);
  }

  /** @param {string} reason */
  #failed(reason) {
    this.#section.dataset.status = "failed";
    this.#say(
      `The run could not go on here (${reason}). The tables on this page were made by the same program when the page was built; the button tries again.`,
    );
  }

  /** @param {boolean} on */
  #running(on) {
    if (on) delete this.#section.dataset.status;
    const go = this.#button(".runner-go");
    const stop = this.#button(".runner-stop");
    const focused = document.activeElement;
    stop.hidden = !on;
    // The button that was pressed hands the focus to the one that can be pressed now.
    if (on && focused === go) stop.focus();
    go.disabled = on;
    if (!on && focused === stop) go.focus();
    this.#element(".runner-bar").hidden = !on;
    this.#progress(0, "");
  }

  /** @param {string} words */
  #say(words) {
    const status = this.#element("[data-said]");
    if (status.textContent !== words) status.textContent = words;
  }

  /**
   * @param {number} share
   * @param {string} words
   */
  #progress(share, words) {
    /** @type {HTMLProgressElement} */ (this.#element(".runner-bar")).value = share;
    this.#element("[data-progress]").textContent = words;
  }

  /** @param {string} selector */
  #button(selector) {
    return /** @type {HTMLButtonElement} */ (this.#element(selector));
  }

  /** @param {string} selector */
  #element(selector) {
    return /** @type {HTMLElement} */ (this.#section.querySelector(selector));
  }
}

/** @type {Run[]} */
let runs = [];

/** Take over the runs of the page that is shown now, and stop those that are gone. */
function attach() {
  for (const run of runs) if (!run.isShown) run.leave();
  runs = runs.filter((run) => run.isShown);
  for (const section of document.querySelectorAll(".runner:not([data-attached])")) {
    if (!(section instanceof HTMLElement)) continue;
    section.dataset.attached = "";
    runs.push(new Run(section));
  }
}

onEachPage(attach);

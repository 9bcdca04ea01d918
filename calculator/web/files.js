// @ts-check
/**
 * A reader's own files: dropped, chosen or pasted, read by Python in this page. Nothing is sent.
 */

import { morph } from "./morph.js";

/**
 * What Python says of files; see training_memory/files_door.py.
 * @typedef {{ok: true, state: string, said: string, html: string}
 *   | {ok: false, said: string, html: string}} Reading
 */

const DOOR = "training_memory.files_door";
/** Python refuses what is longer; the rest of a model's weights need not be read to say so. */
const MOST_BYTES = 2 ** 20 + 1;
const WORDS = {
  waiting: "This waits for Python, which is on its way.",
  reading: "Reading …",
};

export class Files {
  #fold;
  #runtime;
  #package;
  #state;
  #take;
  /** What was chosen or dropped last. @type {File[]} */
  #files = [];
  #signal;
  /** Counts readings: only the latest is shown. */
  #number = 0;
  /** Where it is shown what was made of the files. */
  #place;

  /**
   * @param {HTMLElement} fold
   * @param {import("./runtime.js").Runtime} runtime
   * @param {string} path  of the readers' package, relative to the site's root
   * @param {() => string} state  what the calculator shows
   * @param {(state: string) => void} take  has the calculator show another state
   * @param {AbortSignal} signal
   */
  constructor(fold, runtime, path, state, take, signal) {
    this.#fold = fold;
    this.#place = /** @type {HTMLElement} */ (
      fold.closest(".tm")?.querySelector("[data-reading]")
    );
    this.#runtime = runtime;
    this.#package = path;
    this.#state = state;
    this.#take = take;
    this.#signal = signal;
    const drop = /** @type {HTMLElement} */ (fold.querySelector("[data-drop]"));
    drop.addEventListener("dragover", (event) => this.#onDrag(event, drop), { signal });
    drop.addEventListener("dragleave", () => delete drop.dataset.over, { signal });
    drop.addEventListener("drop", (event) => this.#onDrop(event, drop), { signal });
    fold.addEventListener("change", (event) => this.#onChange(event), { signal });
    fold.querySelector("[data-read]")?.addEventListener("click", () => this.#read(), { signal });
  }

  /**
   * @param {DragEvent} event
   * @param {HTMLElement} drop
   */
  #onDrag(event, drop) {
    event.preventDefault();
    drop.dataset.over = "";
  }

  /**
   * @param {DragEvent} event
   * @param {HTMLElement} drop
   */
  #onDrop(event, drop) {
    event.preventDefault();
    delete drop.dataset.over;
    this.#files = [...(event.dataTransfer?.files ?? [])];
    this.#read();
  }

  /** @param {Event} event */
  #onChange(event) {
    const input = event.target;
    if (!(input instanceof HTMLInputElement) || input.type !== "file") return;
    this.#files = [...(input.files ?? [])];
    if (this.#files.length > 0) this.#read();
  }

  async #read() {
    const number = (this.#number += 1);
    const isOld = () => this.#signal.aborted || number !== this.#number;
    const area = /** @type {HTMLTextAreaElement} */ (this.#fold.querySelector("[data-paste]"));
    const data = /** @type {HTMLInputElement} */ (this.#fold.querySelector("[data-replicas]"));
    try {
      if (this.#runtime.state.name !== "ready") this.#say(WORDS.waiting);
      const chosen = this.#files.map(async (file) => ({
        name: file.name,
        text: await file.slice(0, MOST_BYTES).text(),
      }));
      const files = await Promise.all(chosen);
      if (area.value.trim()) files.push({ name: "pasted text", text: area.value });
      await this.#runtime.started(this.#signal);
      if (isOld()) return;
      this.#say(WORDS.reading);
      await this.#runtime.use(this.#package);
      const request = { files, state: this.#state(), data: data.value };
      /** @type {Reading} */
      const reading = JSON.parse(await this.#runtime.ask(JSON.stringify(request), DOOR));
      if (isOld()) return;
      this.#say(reading.said);
      morph(this.#place, reading.html);
      if (reading.ok) this.#take(reading.state);
    } catch (error) {
      if (isOld()) return;
      this.#say(`The files could not be read: ${error instanceof Error ? error.message : error}`);
    }
  }

  /** @param {string} words */
  #say(words) {
    const said = /** @type {HTMLElement} */ (this.#fold.querySelector("[data-read-said]"));
    said.textContent = words;
  }
}

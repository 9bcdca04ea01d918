// @ts-check
/**
 * Long work that is under way for a calculator: one line tells what is worked on, and its button, or
 * Escape, stops all of it and lets it go on again.
 */

/** What is worked on for so short a time is not worth telling of. */
const WAITS_MS = 400;

const WORDS = { stop: "Stop", on: "Go on", stopped: "Stopped: what is grey is of the run before." };

/**
 * @typedef {object} Hands
 * @property {() => void} stop  ask for no more of it
 * @property {() => void} again  go on with what was stopped
 */

export class Work {
  #root;
  #said;
  #button;
  /** What is under way. @type {Set<Task>} */
  #going = new Set();
  /** What was stopped, and can go on. @type {Task[]} */
  #stopped = [];
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #waiting;
  #isTold = false;
  #stoppedWords;

  /**
   * @param {HTMLElement} root
   * @param {AbortSignal} signal  says that the page is left
   * @param {string} [stopped]  what is told once it was stopped
   */
  constructor(root, signal, stopped = WORDS.stopped) {
    this.#stoppedWords = stopped;
    this.#root = root;
    this.#said = root.querySelector("[data-working]");
    this.#button = /** @type {HTMLButtonElement | null} */ (root.querySelector("[data-stop]"));
    this.#button?.addEventListener("click", () => this.#onButton(), { signal });
    const stop = (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Escape" && !event.defaultPrevented && this.#isTold) this.#stop();
    };
    root.addEventListener("keydown", stop, { signal });
    signal.addEventListener("abort", () => clearTimeout(this.#waiting));
  }

  /**
   * Something long begins. Whoever begins it ends it, in whatever way.
   * @param {string} words  what is done, as "Trying changes"
   * @param {Hands} hands
   */
  begin(words, hands) {
    this.forget();
    const task = new Task(words, hands, () => this.#show(), () => this.#end(task));
    this.#going.add(task);
    this.#waiting ??= setTimeout(() => {
      this.#isTold = true;
      this.#show();
    }, WAITS_MS);
    return task;
  }

  /** What was stopped is of no interest any more. */
  forget() {
    if (this.#stopped.length === 0) return;
    this.#stopped = [];
    this.#show();
  }

  /** @param {Task} task */
  #end(task) {
    this.#going.delete(task);
    if (this.#going.size > 0) return this.#show();
    clearTimeout(this.#waiting);
    this.#waiting = undefined;
    this.#isTold = false;
    this.#show();
  }

  #onButton() {
    if (this.#stopped.length === 0) return this.#stop();
    const stopped = this.#stopped;
    this.forget();
    for (const { hands } of stopped) hands.again();
  }

  #stop() {
    this.#stopped = [...this.#going];
    for (const { hands } of this.#stopped) hands.stop();
    for (const task of this.#stopped) task.end();
  }

  #show() {
    if (this.#said === null || this.#button === null) return;
    const [first] = this.#going;
    const stopped = this.#stopped.length > 0;
    const shown = stopped || (this.#isTold && first !== undefined);
    const words = stopped ? this.#stoppedWords : shown ? `${first?.words} …` : "";
    if (this.#said.textContent !== words) this.#said.textContent = words;
    // What goes away hands the focus on to what it was about.
    const handsOn = !shown && document.activeElement === this.#button;
    this.#button.textContent = stopped ? WORDS.on : WORDS.stop;
    this.#button.hidden = !shown;
    if (!handsOn) return;
    /** @type {HTMLElement | null} */
    const answer = this.#root.querySelector("output, input[type=range]");
    answer?.focus({ preventScroll: true });
  }
}

/** One piece of long work. */
class Task {
  words;
  hands;
  #show;
  end;

  /**
   * @param {string} words
   * @param {Hands} hands
   * @param {() => void} show
   * @param {() => void} end
   */
  constructor(words, hands, show, end) {
    this.words = words;
    this.hands = hands;
    this.#show = show;
    this.end = end;
  }

  /**
   * It goes on with something else.
   * @param {string} words
   */
  say(words) {
    if (words === this.words) return;
    this.words = words;
    this.#show();
  }
}

// @ts-check
/**
 * The animated step: plays one film, or two side by side on one time axis. Where things stand, how
 * long they last and what is said of them comes from Python; nothing plays unless it is asked to.
 */

import { FilmList } from "./film-list.js";
import { FilmView, find } from "./film.js";
import { FilmChoice } from "./film-choice.js";
import { onEachPage } from "./pages.js";

/** @typedef {import("./film.js").Film} Film */

/** How long nothing must change before a screen reader is told, in milliseconds. */
const SETTLED_MS = 250;
/** The longest time between two drawings that is played: a page in the background stands still. */
const LONGEST_MS = 250;

const KEYS = new Set([" ", "ArrowLeft", "ArrowRight", "PageUp", "PageDown", "Home", "End"]);

class Player {
  #section;
  #left = new AbortController();
  #range;
  #told;
  #play;
  #still = matchMedia("(prefers-reduced-motion: reduce)");

  /** @type {FilmView[]} */
  #views = [];
  /** @type {FilmList[]} */
  #lists = [];
  /** Lets go of the films that are shown. */
  #shown = new AbortController();
  /** Where the cursor stands on the axis. */
  #x = 0;
  #playing = false;
  /** Seconds at normal speed that the current frame has played. */
  #spent = 0;
  #lastTime = 0;
  #request = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #settling;

  /** @param {HTMLElement} section */
  constructor(section) {
    this.#section = section;
    this.#range = /** @type {HTMLInputElement} */ (find(section, ".player-range"));
    this.#told = find(section, "[data-told]");
    this.#play = find(section, '[data-do="play"]');
    const { signal } = this.#left;
    const { content } = /** @type {HTMLTemplateElement} */ (find(section, "[data-films]"));
    const films = JSON.parse(content.textContent ?? "[]");
    new FilmChoice(section, films, (these) => this.#take(these), signal);
    this.#range.addEventListener("input", () => this.#seek(Number(this.#range.value)), { signal });
    section.addEventListener("click", (event) => this.#onClick(event), { signal });
    section.addEventListener("keydown", (event) => this.#onKey(event), { signal });
    section.addEventListener("pointerdown", (event) => this.#onPointer(event), { signal });
    this.#still.addEventListener("change", () => this.#still.matches && this.pause(), { signal });
    document.addEventListener("visibilitychange", () => document.hidden && this.pause(), { signal });
  }

  get isShown() {
    return this.#section.isConnected;
  }

  /** Stop, and let go of everything outside the section. */
  leave() {
    cancelAnimationFrame(this.#request);
    clearTimeout(this.#settling);
    this.#shown.abort();
    this.#left.abort();
  }

  /**
   * Show other films, at the place where the cursor stands.
   * @param {Film[]} films
   */
  #take(films) {
    this.#shown.abort();
    this.#shown = new AbortController();
    const stages = this.#section.querySelectorAll(".film-stage");
    const nows = this.#section.querySelectorAll(".film-now");
    this.#views = films.map(
      (film, place) =>
        new FilmView(
          film,
          /** @type {HTMLElement} */ (stages[place]),
          /** @type {HTMLElement} */ (nows[place]),
        ),
    );
    this.#lists = this.#views.map(
      (view) =>
        new FilmList(
          view,
          (index) => this.#goTo(view, index),
          this.#shown.signal,
        ),
    );
    this.#range.max = String(this.#leader.film.wide);
    this.#place(this.#x);
    this.#draw();
    this.#settle();
  }

  /** The film whose playing times are used. */
  get #leader() {
    return /** @type {FilmView} */ (this.#views[0]);
  }

  /** @param {Event} event */
  #onClick(event) {
    const button = event.target instanceof Element ? event.target.closest("button") : null;
    if (button === null) return;
    const what = button.dataset.do;
    if (what === "play") this.#toggle();
    else if (what === "back") this.#byHand(() => this.#step(-1));
    else if (what === "forward") this.#byHand(() => this.#step(1));
    else if (what === "peak") {
      const stages = [...this.#section.querySelectorAll(".film-stage")];
      const view = this.#views[stages.findIndex((stage) => stage.contains(button))];
      if (view) this.#goTo(view, view.film.peak);
    } else if (what === "still") {
      this.#goTo(this.#leader, Number(button.dataset.frame));
      this.#range.focus();
    }
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || !KEYS.has(event.key)) return;
    const { target } = event;
    if (!(target instanceof Element) || target.closest("form, select")) return;
    if (event.key === " " && target.closest("button, summary")) return;
    event.preventDefault();
    if (event.key === " ") this.#toggle();
    else if (event.key === "Home") this.#seek(0);
    else if (event.key === "End") this.#seek(this.#leader.film.wide);
    else {
      const by = event.key === "ArrowRight" || event.key === "PageDown" ? 1 : -1;
      const far = event.key.startsWith("Page") || event.shiftKey;
      this.#byHand(() => (far ? this.#stop(by) : this.#step(by)));
    }
  }

  /** @param {PointerEvent} event */
  #onPointer(event) {
    const plot = event.target instanceof Element ? event.target.closest(".film-plot") : null;
    if (!(plot instanceof HTMLElement) || event.button !== 0) return;
    const view = this.#views.find((one) => one.stage.contains(plot));
    if (view === undefined) return;
    const follow = (/** @type {PointerEvent} */ at) =>
      this.#seek(Math.round(view.pointed(at) * view.film.wide));
    // From here on the arrow keys lead on.
    this.#range.focus({ preventScroll: true });
    const held = new AbortController();
    const { signal } = held;
    event.preventDefault(); // the curve would take the focus away again
    plot.setPointerCapture(event.pointerId);
    plot.addEventListener("pointermove", follow, { signal });
    for (const end of ["pointerup", "pointercancel"]) {
      plot.addEventListener(end, () => held.abort(), { signal });
    }
    follow(event);
  }

  /**
   * Do something the reader's hand asked for: playing ends, and where it leads is told.
   * @param {() => void} act
   */
  #byHand(act) {
    this.pause();
    act();
    this.#draw();
    this.#settle();
  }

  /** @param {number} x */
  #seek(x) {
    this.#byHand(() => this.#place(x));
  }

  /** @param {number} x */
  #place(x) {
    this.#x = Math.max(0, Math.min(this.#leader.film.wide, x));
    for (const view of this.#views) view.seek(this.#x);
  }

  /**
   * @param {FilmView} view
   * @param {number} index
   */
  #goTo(view, index) {
    this.#byHand(() => this.#stand(view, index));
  }

  /**
   * Let a film stand exactly at a frame, and the others at the same place on the axis.
   * @param {FilmView} view
   * @param {number} index
   */
  #stand(view, index) {
    this.#place(view.frame(index).x);
    view.index = index;
  }

  /**
   * One event further or back, in whichever film has the nearest.
   * @param {1 | -1} by
   */
  #step(by) {
    const views = this.#views;
    if (by > 0) {
      const next = Math.min(...views.map((view) => view.nextX));
      if (next === Infinity) {
        this.#x = this.#leader.film.wide;
        return;
      }
      for (const view of views) if (view.nextX === next) view.index += 1;
      this.#x = next;
      return;
    }
    const here = Math.max(...views.map((view) => view.x));
    if (this.#x === here) {
      for (const view of views) if (view.x === here && view.index > 0) view.index -= 1;
    }
    this.#x = Math.max(...views.map((view) => view.x));
  }

  /**
   * A layer further or back.
   * @param {1 | -1} by
   */
  #stop(by) {
    this.#stand(this.#leader, this.#leader.stop(by));
  }

  #toggle() {
    if (this.#playing) {
      this.pause();
      this.#draw();
      this.#settle();
    } else if (!this.#still.matches) this.#start();
  }

  #start() {
    if (this.#isOver) this.#place(0);
    const { endX, x } = this.#leader;
    const part = endX > x ? (this.#x - x) / (endX - x) : 0;
    this.#spent = part * this.#leader.frame(this.#leader.index).seconds;
    this.#playing = true;
    this.#lastTime = 0;
    clearTimeout(this.#settling);
    this.#told.textContent = "";
    this.#label();
    this.#request = requestAnimationFrame((time) => this.#onFrame(time));
  }

  pause() {
    if (!this.#playing) return;
    this.#playing = false;
    cancelAnimationFrame(this.#request);
    this.#label();
  }

  #label() {
    this.#play.dataset.playing = String(this.#playing);
    const words = this.#play.querySelector("[data-words]");
    if (words) words.textContent = this.#playing ? "Pause" : "Play";
  }

  get #isOver() {
    return this.#x >= this.#leader.film.wide;
  }

  get #speed() {
    return Number(/** @type {HTMLSelectElement} */ (find(this.#section, "select[name=speed]")).value);
  }

  /** @param {number} time */
  #onFrame(time) {
    if (!this.#playing) return;
    const passed = this.#lastTime ? Math.min(LONGEST_MS, time - this.#lastTime) : 0;
    this.#lastTime = time;
    this.#advance((passed / 1000) * this.#speed);
    if (this.#isOver) {
      this.pause();
      this.#draw();
      return;
    }
    this.#draw();
    this.#request = requestAnimationFrame((next) => this.#onFrame(next));
  }

  /** @param {number} seconds  at normal speed */
  #advance(seconds) {
    const leader = this.#leader;
    this.#spent += seconds;
    while (leader.nextX !== Infinity && this.#spent >= leader.frame(leader.index).seconds) {
      this.#spent -= leader.frame(leader.index).seconds;
      leader.index += 1;
    }
    const { endX, x } = leader;
    const part = Math.min(1, this.#spent / leader.frame(leader.index).seconds);
    this.#x = x + part * (endX - x);
    for (const view of this.#views) {
      if (view !== leader) while (view.nextX <= this.#x) view.index += 1;
    }
  }

  #draw() {
    const speed = this.#playing ? this.#speed : 0;
    for (const view of this.#views) view.show(this.#x, speed);
    // A slider that has the focus speaks whenever it moves: while playing it waits.
    if (!this.#playing || document.activeElement !== this.#range) {
      this.#range.value = String(this.#x);
    }
    for (const list of this.#lists) list.mark();
  }

  /** Tell where the cursor stands, once it stands. */
  #settle() {
    this.#range.setAttribute("aria-valuetext", this.#leader.spoken);
    clearTimeout(this.#settling);
    this.#settling = setTimeout(() => {
      // The slider tells its own value.
      if (document.activeElement === this.#range && this.#views.length === 1) return;
      this.#told.textContent = this.#views.map((view) => view.spoken).join(" ");
    }, SETTLED_MS);
  }
}

/** @type {Player[]} */
let players = [];

/** Take over the players of the page that is shown now, and stop those that are gone. */
function attach() {
  for (const player of players) if (!player.isShown) player.leave();
  players = players.filter((player) => player.isShown);
  for (const section of document.querySelectorAll(".player:not([data-attached])")) {
    if (!(section instanceof HTMLElement)) continue;
    section.dataset.attached = "";
    players.push(new Player(section));
  }
}

onEachPage(attach);

// @ts-check
/**
 * The deck: its page's sections shown one at a time on the whole screen. They are shown where they
 * stand, not copied, so that a calculator in a slide stays the one that the reader has used.
 */

import { onEachPage } from "./pages.js";

/** Keys that turn the slides. In a form field they keep their own meaning. */
const TURNS = new Map([
  ["ArrowRight", 1],
  ["ArrowDown", 1],
  ["PageDown", 1],
  [" ", 1],
  ["ArrowLeft", -1],
  ["ArrowUp", -1],
  ["PageUp", -1],
]);
const FIELDS = "input, select, textarea, summary, [contenteditable]";

class Deck {
  #deck;
  #slides;
  #bar;
  #counter;
  #start;
  #left = new AbortController();
  #at = 0;

  /** @param {HTMLElement} deck */
  constructor(deck) {
    this.#deck = deck;
    this.#slides = /** @type {HTMLElement[]} */ ([...deck.querySelectorAll(":scope > .slide")]);
    this.#start = this.#makeStart();
    this.#bar = this.#makeBar();
    this.#counter = /** @type {HTMLElement} */ (this.#bar.querySelector(".deck-counter"));
    const line = document.createElement("p");
    line.className = "deck-start";
    line.append(this.#start);
    deck.before(line);
    deck.append(this.#bar);
    const { signal } = this.#left;
    document.addEventListener("keydown", (event) => this.#onKey(event), { signal });
    // Escape and the browser's own way out of the full screen end the presentation as well.
    document.addEventListener("fullscreenchange", () => this.#onFullscreen(), { signal });
    deck.addEventListener("click", (event) => this.#onClick(event), { signal });
  }

  get isShown() {
    return this.#deck.isConnected;
  }

  /** Let go of everything outside the deck. */
  leave() {
    this.#left.abort();
    document.documentElement.classList.remove("deck-open");
  }

  get #isPresenting() {
    return this.#deck.classList.contains("presenting");
  }

  get #isOverview() {
    return this.#deck.classList.contains("overview");
  }

  #makeStart() {
    const button = makeButton("Present", "start", "Present the slides on the whole screen");
    button.className = "md-button md-button--primary";
    button.addEventListener("click", () => this.#present(this.#nearest()), {
      signal: this.#left.signal,
    });
    return button;
  }

  #makeBar() {
    const bar = document.createElement("div");
    bar.className = "deck-bar";
    bar.setAttribute("role", "toolbar");
    bar.setAttribute("aria-label", "Presentation");
    const counter = document.createElement("span");
    counter.className = "deck-counter";
    counter.setAttribute("role", "status");
    bar.append(
      makeButton("←", "back", "Previous slide"),
      counter,
      makeButton("→", "on", "Next slide"),
      makeButton("Overview", "overview", "Show all slides"),
      makeButton("Exit", "exit", "End the presentation"),
    );
    return bar;
  }

  /** The slide that the reader is at: the first whose end is still to be seen. */
  #nearest() {
    const place = this.#slides.findIndex((slide) => slide.getBoundingClientRect().bottom > 120);
    return place < 0 ? 0 : place;
  }

  /** @param {number} at */
  #present(at) {
    this.#deck.classList.add("presenting");
    document.documentElement.classList.add("deck-open");
    this.#show(at);
    // Where the browser refuses, the deck still fills the window; where it takes its time, the
    // presentation may be over before.
    this.#deck
      .requestFullscreen?.()
      .then(() => (this.#isPresenting ? undefined : document.exitFullscreen()))
      .catch(() => {});
  }

  async #exit() {
    this.#deck.classList.remove("presenting", "overview");
    document.documentElement.classList.remove("deck-open");
    for (const slide of this.#slides) slide.removeAttribute("tabindex");
    if (document.fullscreenElement === this.#deck) await document.exitFullscreen();
    this.#slides[this.#at]?.scrollIntoView({ block: "start" });
    this.#start.focus({ preventScroll: true });
  }

  /** @param {number} at */
  #show(at) {
    this.#at = Math.min(Math.max(at, 0), this.#slides.length - 1);
    this.#deck.classList.remove("overview");
    for (const [place, slide] of this.#slides.entries()) {
      slide.classList.toggle("current", place === this.#at);
      slide.tabIndex = -1;
    }
    this.#counter.textContent = `${this.#at + 1} / ${this.#slides.length}`;
    const slide = this.#slides[this.#at];
    if (slide) slide.scrollTop = 0;
    slide?.focus({ preventScroll: true });
  }

  #toggleOverview() {
    if (this.#isOverview) {
      this.#show(this.#at);
      return;
    }
    this.#deck.classList.add("overview");
    for (const slide of this.#slides) slide.tabIndex = 0;
    this.#slides[this.#at]?.focus();
  }

  #onFullscreen() {
    if (!document.fullscreenElement && this.#isPresenting) void this.#exit();
  }

  /** @param {MouseEvent} event */
  #onClick(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    const action = target.closest("[data-deck]")?.getAttribute("data-deck");
    if (action === "back") this.#show(this.#at - 1);
    else if (action === "on") this.#show(this.#at + 1);
    else if (action === "overview") this.#toggleOverview();
    else if (action === "exit") void this.#exit();
    else if (this.#isOverview) this.#open(target, event);
  }

  /**
   * Open the slide of the overview that the reader chose.
   * @param {HTMLElement} target
   * @param {Event} event
   */
  #open(target, event) {
    const slide = /** @type {HTMLElement | null} */ (target.closest(".slide"));
    if (!slide) return;
    event.preventDefault();
    this.#show(this.#slides.indexOf(slide));
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    if (!this.#isPresenting || event.ctrlKey || event.metaKey || event.altKey) return;
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.key === "Escape") {
      void this.#exit();
    } else if (this.#isOverview) {
      this.#onOverviewKey(event, target);
      return;
    } else if (target.closest(FIELDS)) {
      return;
    } else if (event.key === "o" || event.key === "O") {
      this.#toggleOverview();
    } else if (event.key === "Home") {
      this.#show(0);
    } else if (event.key === "End") {
      this.#show(this.#slides.length - 1);
    } else if (TURNS.has(event.key) && !(event.key === " " && target.closest("button, a"))) {
      this.#show(this.#at + (TURNS.get(event.key) ?? 0));
    } else {
      return;
    }
    event.preventDefault();
  }

  /**
   * @param {KeyboardEvent} event
   * @param {HTMLElement} target
   */
  #onOverviewKey(event, target) {
    if (event.key === "o" || event.key === "O") {
      this.#toggleOverview();
    } else if (event.key === "Enter" || event.key === " ") {
      if (!target.classList.contains("slide")) return;
      this.#open(target, event);
    } else if (TURNS.has(event.key)) {
      const place = this.#slides.indexOf(target) + (TURNS.get(event.key) ?? 0);
      this.#slides[Math.min(Math.max(place, 0), this.#slides.length - 1)]?.focus();
    } else {
      return;
    }
    event.preventDefault();
  }
}

/**
 * @param {string} text
 * @param {string} action
 * @param {string} label
 */
function makeButton(text, action, label) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = text;
  button.dataset.deck = action;
  button.setAttribute("aria-label", label);
  button.title = label;
  return button;
}

/** @type {Deck | undefined} */
let deck;

onEachPage(() => {
  if (deck && !deck.isShown) {
    deck.leave();
    deck = undefined;
  }
  const found = /** @type {HTMLElement | null} */ (document.querySelector(".deck"));
  if (found && !deck) deck = new Deck(found);
});

// @ts-check
/**
 * One film on the page: its curve with the cursor over it, and what it says of its current moment.
 *
 * Playing moves three elements and changes texts. Sizes, places and words all come from Python; see
 * training_memory/frames.py.
 */

/**
 * @typedef {object} Frame
 * @property {number} at  its event's place among all of the step's, from 0
 * @property {number} x
 * @property {number} seconds  how long it plays at normal speed
 * @property {number} phase
 * @property {number} category
 * @property {number} change  bytes
 * @property {string} label
 * @property {number} why
 * @property {number[]} parts
 * @property {number} total
 * @property {number} row  in `rows`, or -1
 */

/**
 * @typedef {object} Row
 * @property {string} label
 * @property {string} said  what happens in a layer; "" for other parts of the step
 * @property {number} parent
 * @property {number} first
 * @property {number} last
 * @property {number} change
 * @property {number} events
 * @property {number} turns  how often it repeats, or 0
 * @property {number} shown  how many of these are in the film
 */

/**
 * @typedef {object} Film
 * @property {number} wide  the right end of the axis
 * @property {number} events
 * @property {number} peak  a frame
 * @property {number | null} capacity
 * @property {string[]} phases
 * @property {string[]} categories
 * @property {string[]} kinds  the categories in words
 * @property {string[]} whys
 * @property {Frame[]} frames
 * @property {Row[]} rows
 * @property {Record<string, string>} shown  the text of each total and change, by its bytes
 * @property {Record<string, string>} parts  the text of each part, by its bytes
 */

/** Frames that pass quicker than this, in seconds, are told together. */
const READABLE = 0.7;
/** While playing, texts change at most this often, in milliseconds: more is a flicker. */
const TEXTS_MS = 90;

export class FilmView {
  film;
  /** The current frame. */
  index = 0;

  #plot;
  #ahead;
  #cursor;
  #height;
  #now;
  #top;
  #largest;
  /** @type {Map<string, HTMLElement>} */
  #texts = new Map();
  /** @type {Map<number, {row: HTMLElement, fill: HTMLElement, size: HTMLElement}>} */
  #parts = new Map();
  #told = -1;
  #toldAt = 0;

  /**
   * @param {Film} film
   * @param {HTMLElement} stage
   * @param {HTMLElement} now
   */
  constructor(film, stage, now) {
    this.film = film;
    this.stage = stage;
    this.#plot = find(stage, ".film-plot");
    this.#ahead = find(stage, ".film-ahead");
    this.#cursor = find(stage, ".film-cursor");
    this.#height = find(stage, ".film-height");
    this.#now = now;
    this.#top = Number(this.#plot.dataset.top);
    this.#largest = Number(now.dataset.largest);
    for (const place of stage.querySelectorAll("[data-film]")) {
      if (place instanceof HTMLElement) this.#texts.set(place.dataset.film ?? "", place);
    }
    for (const row of now.querySelectorAll("[data-category]")) {
      if (!(row instanceof HTMLElement)) continue;
      const part = { row, fill: find(row, ".film-fill"), size: find(row, ".film-size") };
      this.#parts.set(Number(row.dataset.category), part);
    }
  }

  get frames() {
    return this.film.frames;
  }

  /** Where the list of the step belongs. */
  get list() {
    return /** @type {HTMLDetailsElement} */ (find(this.#now, ".film-list"));
  }

  /** @param {number} index */
  frame(index) {
    return /** @type {Frame} */ (this.frames[index]);
  }

  /** The axis's place at the current frame. */
  get x() {
    return this.frame(this.index).x;
  }

  /** The next frame's place, or Infinity at the end. */
  get nextX() {
    return this.frames[this.index + 1]?.x ?? Infinity;
  }

  /** Where the current frame ends on the axis. */
  get endX() {
    return this.frames[this.index + 1]?.x ?? this.film.wide;
  }

  /**
   * Go to the last frame at or before a place on the axis.
   * @param {number} x
   */
  seek(x) {
    let low = 0;
    let high = this.frames.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.frame(middle).x <= x) low = middle;
      else high = middle - 1;
    }
    this.index = low;
  }

  /**
   * The nearest frame in a direction at which something ends: a layer, or an event outside layers.
   * @param {1 | -1} by
   */
  stop(by) {
    let index = this.index + by;
    while (index > 0 && index < this.frames.length - 1 && !this.#ends(index)) index += by;
    return Math.max(0, Math.min(this.frames.length - 1, index));
  }

  /** @param {number} index */
  #ends(index) {
    const row = this.#layer(this.frame(index));
    return row === undefined || row.last === index;
  }

  /** @param {Frame} frame */
  #layer(frame) {
    const row = this.film.rows[frame.row];
    return row?.said ? row : undefined;
  }

  /**
   * The part of the plot's width at which a pointer is, from 0 to 1.
   * @param {PointerEvent} event
   */
  pointed(event) {
    const box = this.#plot.getBoundingClientRect();
    return Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
  }

  /**
   * Show a place on the axis at or after the current frame's and before the next one's.
   * @param {number} x
   * @param {number} speed  0 where nothing plays
   */
  show(x, speed) {
    const frame = this.frame(this.index);
    const next = this.frames[this.index + 1];
    // Where frames are left out, what the next one finds is not what this one left.
    const later = next ? next.total - next.change : frame.total;
    const part = this.endX > frame.x ? (x - frame.x) / (this.endX - frame.x) : 0;
    const total = frame.total + part * (later - frame.total);
    const across = `translateX(${(100 * x) / this.film.wide}%)`;
    this.#ahead.style.transform = across;
    this.#cursor.style.transform = across;
    this.#height.style.transform = `translateY(${100 - (100 * total) / this.#top}%)`;
    this.#tell(frame, speed);
  }

  /**
   * @param {Frame} frame
   * @param {number} speed
   */
  #tell(frame, speed) {
    const now = performance.now();
    if (speed && (this.#told === this.index || now - this.#toldAt < TEXTS_MS)) return;
    this.#told = this.index;
    this.#toldAt = now;
    const { film } = this;
    const layer = speed && frame.seconds / speed < READABLE ? this.#layer(frame) : undefined;
    const row = film.rows[frame.row];
    const kind = film.kinds[frame.category] ?? "";
    if (layer) {
      this.#say("where", film.phases[frame.phase] ?? "");
      this.#say("label", layer.label);
      this.#say("change", `${this.signed(layer.change)} in all`);
      this.#say("why", layer.said);
    } else {
      this.#say("where", row?.label ?? film.phases[frame.phase] ?? "");
      this.#say("label", frame.label);
      this.#say("change", `${this.signed(frame.change)} ${kind}`);
      this.#say("why", film.whys[frame.why] ?? "");
    }
    const of = film.events.toLocaleString("en");
    this.#say("count", `event ${(frame.at + 1).toLocaleString("en")} of ${of}`);
    this.#say("total", this.size(frame.total));
    this.#fit(frame.total);
    const change = this.#texts.get("change");
    if (change) change.dataset.kind = layer ? "" : (film.categories[frame.category] ?? "");
    for (const [category, { row: part, fill, size }] of this.#parts) {
      const bytes = frame.parts[category] ?? 0;
      fill.style.transform = `scaleX(${bytes / this.#largest})`;
      const text = film.parts[String(bytes)] ?? "";
      if (size.textContent !== text) size.textContent = text;
      const touched = category === frame.category ? (frame.change < 0 ? "freed" : "taken") : "";
      if (part.dataset.touched !== touched) part.dataset.touched = touched;
    }
  }

  /** @param {number} total */
  #fit(total) {
    const over = this.film.capacity !== null && total > this.film.capacity;
    const [fits, more] = [this.#texts.get("fits"), this.#texts.get("over")];
    if (fits) fits.hidden = over;
    if (more) more.hidden = !over;
  }

  /**
   * @param {string} name
   * @param {string} words
   */
  #say(name, words) {
    const place = this.#texts.get(name);
    if (place && place.textContent !== words) place.textContent = words;
  }

  /** @param {number} bytes */
  size(bytes) {
    return this.film.shown[String(Math.abs(bytes))] ?? "";
  }

  /** @param {number} bytes */
  signed(bytes) {
    return `${bytes < 0 ? "−" : bytes > 0 ? "+" : ""}${this.size(bytes)}`;
  }

  /** The current moment in a few sentences, for someone who does not see it. */
  get spoken() {
    const frame = this.frame(this.index);
    const did = frame.change < 0 ? "freed" : "taken";
    const kind = this.film.kinds[frame.category] ?? "";
    const peak = this.index === this.film.peak ? " This is the peak." : "";
    return (
      `${frame.label}: ${this.size(frame.change)} of ${kind} ${did}, ` +
      `${this.size(frame.total)} in memory.${peak} ${this.film.whys[frame.why] ?? ""}`
    );
  }
}

/**
 * @param {Element} within
 * @param {string} selector
 */
export function find(within, selector) {
  const found = within.querySelector(selector);
  if (!(found instanceof HTMLElement)) throw new Error(`the page has no ${selector}`);
  return found;
}

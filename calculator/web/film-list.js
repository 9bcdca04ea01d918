// @ts-check
/**
 * The step as a list that opens: a row for each of its parts, down to the single event. Rows are
 * made when they are first opened, since a step has hundreds of events.
 */

/** @typedef {import("./film.js").FilmView} FilmView */

export class FilmList {
  #view;
  #root;
  #jump;
  /** Each part's entries in order: rows and, outside of them, frames. @type {Map<number, Entry[]>} */
  #entries = new Map();
  /** The buttons there are, by row and by frame. @type {Map<string, HTMLElement>} */
  #buttons = new Map();
  /** @type {HTMLElement | undefined} */
  #current;
  /** The frame that is marked, unless rows opened or closed since. */
  #marked = -1;

  /**
   * @typedef {{row: number} | {frame: number}} Entry
   */

  /**
   * @param {FilmView} view
   * @param {(index: number) => void} jump  what a click on a moment does
   * @param {AbortSignal} signal
   */
  constructor(view, jump, signal) {
    this.#view = view;
    this.#jump = jump;
    this.#root = /** @type {HTMLElement} */ (view.list.querySelector("ol"));
    // The same drawing may have been taken over before.
    this.#root.replaceChildren();
    this.#sort();
    this.#fill(this.#root, -1);
    view.list.addEventListener("toggle", () => this.mark(), { signal });
    this.#root.addEventListener("click", (event) => this.#onClick(event), { signal });
  }

  /** Give every part of the step its entries: its rows, and its events outside of these. */
  #sort() {
    const { rows, frames } = this.#view.film;
    const into = (/** @type {number} */ parent, /** @type {Entry} */ entry) => {
      const entries = this.#entries.get(parent);
      if (entries) entries.push(entry);
      else this.#entries.set(parent, [entry]);
    };
    rows.forEach((row, index) => into(row.parent, { row: index }));
    frames.forEach((frame, index) => into(frame.row, { frame: index }));
    const first = (/** @type {Entry} */ entry) =>
      "row" in entry ? (rows[entry.row]?.first ?? 0) : entry.frame;
    for (const entries of this.#entries.values()) entries.sort((a, b) => first(a) - first(b));
  }

  /**
   * @param {HTMLElement} list
   * @param {number} parent
   */
  #fill(list, parent) {
    list.append(...(this.#entries.get(parent) ?? []).map((entry) => this.#item(entry)));
  }

  /** @param {Entry} entry */
  #item(entry) {
    const { film } = this.#view;
    const item = document.createElement("li");
    const isRow = "row" in entry;
    const row = isRow ? film.rows[entry.row] : undefined;
    const frame = isRow ? undefined : film.frames[entry.frame];
    const label = row ? row.label : (frame?.label ?? "");
    if (row && isRow) {
      const open = button("film-open", `${label}: its parts`);
      open.dataset.row = String(entry.row);
      open.setAttribute("aria-expanded", "false");
      item.append(open);
    }
    const go = button("film-go");
    go.dataset.frame = String(row ? row.first : isRow ? 0 : entry.frame);
    const skipped = row && row.turns > row.shown ? ` (${row.shown} of them shown)` : "";
    go.append(span("", label + skipped));
    go.append(span("film-bytes", this.#view.signed(row ? row.change : (frame?.change ?? 0))));
    this.#buttons.set(isRow ? `row ${entry.row}` : `frame ${entry.frame}`, go);
    item.append(go);
    return item;
  }

  /** @param {Event} event */
  #onClick(event) {
    const clicked = event.target instanceof Element ? event.target.closest("button") : null;
    if (clicked === null) return;
    if (clicked.dataset.frame !== undefined) this.#jump(Number(clicked.dataset.frame));
    else if (clicked.dataset.row !== undefined) this.#toggle(clicked, Number(clicked.dataset.row));
  }

  /**
   * @param {HTMLElement} open
   * @param {number} row
   */
  #toggle(open, row) {
    const item = /** @type {HTMLElement} */ (open.parentElement);
    const expanded = open.getAttribute("aria-expanded") === "true";
    open.setAttribute("aria-expanded", String(!expanded));
    let list = item.querySelector(":scope > ol");
    if (list === null) {
      list = document.createElement("ol");
      this.#fill(/** @type {HTMLElement} */ (list), row);
      item.append(list);
    }
    /** @type {HTMLElement} */ (list).hidden = expanded;
    this.#marked = -1;
    this.mark();
  }

  /** Mark the entry of the current moment, or of the closed row that it is in. */
  mark() {
    if (!this.#view.list.open || this.#marked === this.#view.index) return;
    this.#marked = this.#view.index;
    let found = this.#visible(`frame ${this.#view.index}`);
    let row = this.#view.frame(this.#view.index).row;
    while (found === undefined && row >= 0) {
      found = this.#visible(`row ${row}`);
      row = this.#view.film.rows[row]?.parent ?? -1;
    }
    if (found === this.#current) return;
    this.#current?.removeAttribute("aria-current");
    found?.setAttribute("aria-current", "step");
    this.#current = found;
  }

  /** @param {string} name */
  #visible(name) {
    const found = this.#buttons.get(name);
    return found?.closest("ol[hidden]") ? undefined : found;
  }
}

/**
 * @param {string} css
 * @param {string} [label]
 */
function button(css, label) {
  const made = document.createElement("button");
  made.type = "button";
  made.className = css;
  if (label !== undefined) made.setAttribute("aria-label", label);
  return made;
}

/**
 * @param {string} css
 * @param {string} words
 */
function span(css, words) {
  const made = document.createElement("span");
  if (css) made.className = css;
  made.textContent = words;
  return made;
}

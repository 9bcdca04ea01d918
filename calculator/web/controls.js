// @ts-check
/**
 * A calculator's controls: what the reader does with them, and what is shown in and beside them.
 */

/**
 * @typedef {object} Hears
 * @property {(name: string, value: string, typed: boolean) => void} set
 * @property {(name: string, by: number) => void} step
 * @property {(action: string, button: HTMLElement) => void} act
 */

/** What stands in the status line; the built page's words stay until something happens. */
const WORDS = {
  ready: "Every change is computed in this page, by Python.",
  waiting: "Your change is answered as soon as Python is here.",
  refused: "Still the last answer that was possible: ",
};
const COPIED_MS = 2000;

/** What is of no use without Python. */
const NEEDING_PYTHON =
  'fieldset.tm-controls, [data-name], [data-set], [data-error], [data-action="command"], [data-action="export"]';

/** @typedef {HTMLInputElement | HTMLSelectElement} Control */

/**
 * @param {unknown} control
 * @returns {control is HTMLInputElement}
 */
function isNumber(control) {
  return control instanceof HTMLInputElement && control.inputMode === "numeric";
}

/**
 * Take the commas out of a number whose thousands an edit has moved: "4,096" less its last digit is
 * 409, not "4,09".
 * @param {HTMLInputElement} input
 */
function ungroup(input) {
  const text = input.value;
  if (!/^[\d,]*,[\d,]*$/.test(text) || /^\d{1,3}(,\d{3})+$/.test(text)) return;
  const before = text.slice(0, input.selectionStart ?? text.length).replaceAll(",", "").length;
  input.value = text.replaceAll(",", "");
  input.setSelectionRange(before, before);
}

/**
 * Let a choice hold what it does not offer, so that what a link gave stands there with its reason, and
 * whatever is chosen instead is a change; all other such values go.
 * @param {HTMLSelectElement} select
 * @param {string} value
 */
function offer(select, value) {
  // What is not offered stands first.
  if (select.value === value && !select.options[0]?.hasAttribute("data-foreign")) return;
  for (const option of select.querySelectorAll("[data-foreign]")) option.remove();
  if ([...select.options].some((option) => option.value === value)) return;
  const option = new Option(value, value);
  option.disabled = true;
  option.dataset.foreign = "";
  select.prepend(option);
}

export class Controls {
  #section;
  #hears;
  #form;
  #status;
  #progress;
  /** What stands where, by its selector: looking for each anew takes as long as all else. @type {Map<string, Element>} */
  #places = new Map();

  /**
   * @param {HTMLElement} section
   * @param {AbortSignal} signal
   * @param {Hears} hears
   */
  constructor(section, signal, hears) {
    this.#section = section;
    this.#hears = hears;
    this.#form = /** @type {HTMLFormElement} */ (section.querySelector("form"));
    this.#status = /** @type {HTMLElement} */ (section.querySelector("[data-said]"));
    this.#progress = /** @type {HTMLElement} */ (section.querySelector("[data-progress]"));
    section.addEventListener("input", (event) => this.#onInput(event), { signal });
    section.addEventListener("change", (event) => this.#onChange(event), { signal });
    section.addEventListener("focusout", (event) => this.#onBlur(event), { signal });
    section.addEventListener("keydown", (event) => this.#onKey(event), { signal });
    section.addEventListener("click", (event) => this.#onClick(event), { signal });
    section.addEventListener("submit", (event) => event.preventDefault(), { signal });
    this.enable();
  }

  /** Make everything usable: what is done before Python is ready waits for it. */
  enable() {
    for (const control of this.#section.querySelectorAll(":disabled")) {
      /** @type {HTMLInputElement} */ (control).disabled = false;
    }
    this.#section.querySelector('[data-action="retry"]')?.remove();
  }

  /** @param {Event} event */
  #onInput(event) {
    const input = event.target;
    if (!isNumber(input)) return;
    ungroup(input);
    input.dataset.unanswered = "";
    // Emptied on the way to another number, it means what it meant before.
    const shown = input.dataset.shown ?? input.defaultValue;
    this.#hears.set(input.name, input.value.trim() || shown, true);
  }

  /** @param {Event} event */
  #onChange(event) {
    const control = event.target;
    if (control instanceof HTMLSelectElement) {
      this.#hears.set(control.name, control.value, false);
    } else if (control instanceof HTMLInputElement && control.type === "checkbox") {
      this.#hears.set(control.name, String(control.checked), false);
    } else if (control instanceof HTMLInputElement && control.type === "text") {
      // Numbers were heard while they were typed; a name is heard once it is whole.
      const numeric = control.inputMode === "numeric";
      if (!numeric && control.name !== "") this.#hears.set(control.name, control.value, false);
    } else if (control instanceof HTMLInputElement && control.type === "radio") {
      this.#hears.set(control.dataset.name ?? "", control.value, true);
    }
  }

  /**
   * "4k" while it is typed, "4,096" when the field is left; what cannot be stays as it was typed.
   * @param {Event} event
   */
  #onBlur(event) {
    const input = event.target;
    if (isNumber(input) && input.dataset.unanswered === undefined) {
      input.value = input.dataset.shown ?? input.defaultValue;
    }
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    const input = event.target;
    if (!isNumber(input)) return;
    const by = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (by === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    this.#hears.step(input.name, by);
  }

  /** @param {Event} event */
  #onClick(event) {
    if (!(event.target instanceof Element)) return;
    const button = event.target.closest("button");
    if (button === null) return;
    const { step, preset, set, action } = button.dataset;
    if (step !== undefined) {
      const input = button.parentElement?.querySelector("input");
      if (input) this.#hears.step(input.name, Number(step));
    } else if (preset !== undefined) {
      this.#hears.set("preset", preset, false);
    } else if (set !== undefined) {
      for (const [name, value] of new URLSearchParams(set)) this.#hears.set(name, value, false);
    } else if (action !== undefined) this.#hears.act(action, button);
  }

  /**
   * Show an answer's values. What is being typed stays as it is typed, unless it was stepped.
   * @param {{fields: Record<string, string>, notes: Record<string, string>,
   *   summaries: Record<string, string>, text: Record<string, string>}} answer
   * @param {Map<string, string>} set
   * @param {Map<string, number>} steps
   */
  fill(answer, set, steps) {
    for (const [name, value] of Object.entries(answer.fields)) {
      const control = this.#named(name);
      if (control === null) this.#check(name, value);
      else if (control instanceof HTMLInputElement && control.type === "checkbox") {
        control.checked = value === "true";
      } else {
        control.dataset.shown = value;
        delete control.dataset.unanswered;
        if (control instanceof HTMLSelectElement) offer(control, value);
        const typing = document.activeElement === control && set.has(name) && !steps.has(name);
        if (!typing && control.value !== value) control.value = value;
      }
      this.#note(name, answer.notes[name] ?? "", false);
    }
    for (const [name, words] of Object.entries(answer.summaries)) {
      this.#write(`[data-summary="${name}"]`, words);
    }
    for (const [name, words] of Object.entries(answer.text)) {
      this.#write(`[data-text="${name}"]`, words);
    }
  }

  /**
   * Show what is to be said of some fields beside what they hold.
   * @param {Record<string, string>} notes
   */
  note(notes) {
    for (const [name, words] of Object.entries(notes)) this.#note(name, words, false);
  }

  /**
   * Show beside each field why it cannot be; all others lose what was said of them.
   * @param {{field: string, reason: string}[]} errors
   * @param {Record<string, string>} stepped  what numbers were stepped to, and what a link gave
   */
  refuse(errors, stepped) {
    for (const [name, value] of Object.entries(stepped)) {
      const control = this.#named(name);
      if (!control) continue;
      if (control instanceof HTMLSelectElement) offer(control, value);
      control.value = value;
      control.dataset.unanswered = "";
    }
    const reasons = new Map(errors.map(({ field, reason }) => [field, reason]));
    const labels = [];
    for (const control of this.#form.elements) {
      const { name } = /** @type {Control} */ (control);
      if (!name) continue;
      const reason = reasons.get(name);
      if (reason === undefined) {
        if (control.hasAttribute("aria-invalid")) this.#note(name, "", false);
        continue;
      }
      this.#note(name, reason, true);
      const label = /** @type {Control} */ (control).labels?.[0]?.firstChild?.textContent ?? name;
      labels.push(label.trim());
      reasons.delete(name);
    }
    const rest = [...reasons].map(([field, reason]) => `${field}: ${reason}`);
    const where = labels.length ? `see ${labels.join(", ")}.` : "";
    this.status("refused", WORDS.refused + [where, ...rest].join(" ").trim());
  }

  /**
   * @param {string} name
   * @param {string} words
   * @param {boolean} bad
   */
  #note(name, words, bad) {
    const control = this.#named(name);
    this.#write(`[data-field="${CSS.escape(name)}"] .tm-note`, words)?.classList.toggle("tm-bad", bad);
    if (!control || control.hasAttribute("aria-invalid") === bad) return;
    if (bad) control.setAttribute("aria-invalid", "true");
    else control.removeAttribute("aria-invalid");
    // What is wrong within a folded part shows on its summary.
    const fold = control.closest(".tm-fold");
    fold?.classList.toggle("tm-bad-inside", fold.querySelector("[aria-invalid]") !== null);
  }

  /**
   * Have a place say these words.
   * @param {string} selector
   * @param {string} words
   */
  #write(selector, words) {
    let place = this.#places.get(selector);
    if (!place?.isConnected) {
      place = this.#section.querySelector(selector) ?? undefined;
      if (place) this.#places.set(selector, place);
    }
    if (place && place.textContent !== words) place.textContent = words;
    return place;
  }

  /**
   * @param {string} name
   * @returns {Control | null}
   */
  #named(name) {
    const found = this.#form.elements.namedItem(name);
    return found instanceof HTMLInputElement || found instanceof HTMLSelectElement ? found : null;
  }

  /**
   * @param {string} name
   * @param {string} value
   */
  #check(name, value) {
    const radios = this.#section.querySelectorAll(`input[data-name="${CSS.escape(name)}"]`);
    for (const radio of radios) {
      /** @type {HTMLInputElement} */ (radio).checked =
        /** @type {HTMLInputElement} */ (radio).value === value;
    }
  }

  /**
   * @param {"loading" | "ready" | "refused" | "failed"} kind
   * @param {string} [words]
   */
  status(kind, words = WORDS.ready) {
    this.#progress.textContent = "";
    this.#section.dataset.status = kind;
    this.say(words);
  }

  /** @param {string} words */
  say(words) {
    if (this.#status.textContent !== words) this.#status.textContent = words;
  }

  /**
   * How much of Python is here; only that it is on its way is told to a screen reader.
   * @param {number} share
   * @param {number} size  all of it, in bytes
   */
  progress(share, size) {
    const whole = (size / 1e6).toFixed(1);
    this.#section.dataset.status = "loading";
    this.say(`Loading Python, ${whole} MB, once. You can change things already.`);
    this.#progress.textContent = ` ${((share * size) / 1e6).toFixed(1)} of ${whole} MB`;
  }

  /**
   * Back to the page as it was built, which stays whole.
   * @param {string} reason
   */
  fail(reason) {
    this.#form.reset();
    for (const control of this.#form.elements) {
      delete (/** @type {Control} */ (control).dataset.shown);
      delete (/** @type {Control} */ (control).dataset.unanswered);
      if (control.hasAttribute("aria-invalid")) {
        this.#note(/** @type {Control} */ (control).name, "", false);
      }
    }
    for (const control of this.#section.querySelectorAll(NEEDING_PYTHON)) {
      /** @type {HTMLInputElement} */ (control).disabled = true;
    }
    const words = `Python could not start here (${reason}), so nothing can be changed. What is shown was computed when the page was built. `;
    this.status("failed", words);
    const retry = document.createElement("button");
    retry.type = "button";
    retry.className = "tm-quiet";
    retry.dataset.action = "retry";
    retry.textContent = "Try again";
    this.#status.after(retry);
  }

  /**
   * Put text on the clipboard, or where it can be copied by hand.
   * @param {string} text
   * @param {HTMLElement} button
   */
  async copy(text, button) {
    const area = /** @type {HTMLTextAreaElement} */ (this.#section.querySelector(".tm-copy"));
    try {
      await navigator.clipboard.writeText(text);
      area.hidden = true;
      button.dataset.done = "";
      this.say("Copied.");
      setTimeout(() => delete button.dataset.done, COPIED_MS);
    } catch {
      area.hidden = false;
      area.value = text;
      area.select();
      this.say("The clipboard is closed to this page; the text below is selected for copying.");
    }
  }

  /**
   * @param {Blob} blob
   * @param {string} name
   */
  download(blob, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
  }
}

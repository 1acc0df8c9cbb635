// The panel with the lines of code for what was just done.

import { byId } from "./dom.js";

const LANGUAGES = ["curl", "python"];

export class Code extends EventTarget {
  constructor() {
    super();
    [this.card, this.place, this.format] = [byId("code-card"), byId("code"), byId("format")];
    this.language = LANGUAGES[0];
    this.lines = null;
    this.format.addEventListener("change", () => this.lines && this.show(this.lines));
    for (const name of LANGUAGES) {
      byId(name).addEventListener("click", () => {
        this.language = name;
        this.show(this.lines);
      });
    }
    byId("copy").addEventListener("click", () => this.copy());
  }

  /** Copy the lines. Browsers allow that on localhost and over https only; elsewhere they are selected. */
  async copy() {
    getSelection().selectAllChildren(this.place);
    let done = "The lines are selected; copy them with Ctrl C.";
    if (navigator.clipboard) {
      await navigator.clipboard.writeText(this.place.textContent);
      done = "Copied.";
    }
    this.dispatchEvent(new CustomEvent("copied", { detail: done }));
  }

  /** Show lines. lines: a function of the chosen format that returns those of each language. */
  show(lines) {
    this.lines = lines;
    this.card.hidden = false;
    this.place.textContent = lines(this.format.value)[this.language];
    for (const name of LANGUAGES) byId(name).setAttribute("aria-pressed", String(name === this.language));
  }
}

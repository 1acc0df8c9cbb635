// The script: a text field over a copy of its text in which every turn has its speaker's color. The copy sets the
// height, and both scroll together.

import { byId, element } from "./dom.js";

const TAG = /(\[S[12]\])/i;
const DRAFT = "mlx-port script";
const FIRST = {
  1: "Good morning. This is a voice from your own machine.",
  2:
    "[S1] Good morning. You hear a voice from your own machine. " +
    "[S2] And here is another one. We can talk for as long as you like.",
};

/** Split a text into spans with the colors of its speakers. */
export function colored(text) {
  let speaker = "";
  return text.split(TAG).map((part, place) => {
    if (place % 2) speaker = part[2];
    const kind = speaker && `speaker-${speaker}`;
    return element("span", { className: place % 2 ? `tag ${kind}` : kind }, part);
  });
}

export class Editor {
  constructor() {
    [this.field, this.shown, this.count] = [byId("script"), byId("shown"), byId("count")];
    this.most = Infinity;
    this.field.value = sessionStorage.getItem(DRAFT) ?? "";
    this.field.addEventListener("input", () => this.refresh());
  }

  get text() {
    return this.field.value;
  }

  /** Fit a model: speakers that a text may tag, and most characters. */
  fit(speakers, most) {
    this.most = most;
    if (!this.text.trim()) this.field.value = FIRST[speakers];
    const wanted = speakers === 1 ? [] : ["[S1]", "[S2]"];
    const chips = [...wanted, "[pause:0.5]"].map((mark, place) => {
      const speaker = place < wanted.length;
      const name = speaker ? `Speaker ${place + 1}` : "Pause";
      const className = speaker ? `chip speaker-${place + 1}` : "chip";
      const title = `Insert ${mark}`;
      return element("button", { type: "button", className, title, onclick: () => this.insert(mark) }, name);
    });
    byId("insert").replaceChildren(...chips);
    this.refresh();
  }

  /** Put a mark at the cursor; a turn begins a line. */
  insert(mark) {
    const field = this.field;
    const before = field.value.slice(0, field.selectionStart);
    const space = !before || /\s$/.test(before) ? "" : mark.startsWith("[S") ? "\n" : " ";
    field.setRangeText(`${space}${mark} `, field.selectionStart, field.selectionEnd, "end");
    field.focus();
    this.refresh();
  }

  refresh() {
    sessionStorage.setItem(DRAFT, this.text);
    this.shown.replaceChildren(...colored(this.text), "\n");
    const length = [...this.text].length;
    this.count.textContent = `${length} of ${this.most} characters`;
    this.count.classList.toggle("over", length > this.most);
  }
}

// The script: a text field over a copy of its text in which every turn has its speaker's color. The copy sets the
// height, and both scroll together.

import { byId, element, show } from "./dom.js";
import { wrongMarks } from "./marks.js";

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

/** Find what a model cannot speak: tags of speakers that it lacks, marks that are not closed or misspelt, and
 * characters that it does not read. */
export function unspoken(text, { speakers, letters }) {
  const known = (letter) =>
    letters === null || letters.includes(letter) || letters.includes(plain(letter)) ||
    (letters.includes("0") && /^\p{Nd}$/u.test(letter));
  const found = wrongMarks(text, speakers).map((match) => ({ start: match.index, stop: match.index + match[0].length }));
  for (const match of text.matchAll(/[^\s\p{M}]\p{M}*/gu)) {
    if (!known(match[0])) found.push({ start: match.index, stop: match.index + match[0].length });
  }
  return found.sort((one, other) => one.start - other.start);
}

/** A letter without its accents. */
const plain = (letter) => letter.normalize("NFD").replaceAll(/\p{M}/gu, "");

/** Put the parts of spans that cannot be spoken into marks. */
function marked(spans, wrong) {
  let at = 0;
  for (const span of spans) {
    const text = span.textContent;
    const parts = [];
    let last = 0;
    for (const { start, stop } of wrong) {
      const [from, to] = [Math.max(start - at, last), Math.min(stop - at, text.length)];
      if (from >= to) continue;
      parts.push(text.slice(last, from), element("mark", {}, text.slice(from, to)));
      last = to;
    }
    if (parts.length) span.replaceChildren(...parts, text.slice(last));
    at += text.length;
  }
  return spans;
}

export class Editor {
  constructor() {
    [this.field, this.shown, this.count] = [byId("script"), byId("shown"), byId("count")];
    [this.most, this.model] = [Infinity, { speakers: 2, letters: null }];
    this.field.value = sessionStorage.getItem(DRAFT) ?? "";
    this.field.addEventListener("input", () => this.refresh());
  }

  get text() {
    return this.field.value;
  }

  /** Fit a model: speakers that a text may tag, letters that it has learned, and most characters. */
  fit({ speakers, letters }, most) {
    [this.most, this.model] = [most, { speakers, letters }];
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
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }

  refresh() {
    sessionStorage.setItem(DRAFT, this.text);
    const wrong = unspoken(this.text, this.model);
    this.shown.replaceChildren(...marked(colored(this.text), wrong), "\n");
    const named = [...new Set(wrong.map(({ start, stop }) => this.text.slice(start, stop)))];
    const more = named.length > 8 ? " and more" : "";
    show(byId("unspoken"), named.length ? `Cannot be spoken: ${named.slice(0, 8).join(" ")}${more}` : "");
    const length = [...this.text].length;
    this.count.textContent = `${length} of ${this.most} characters`;
    this.count.classList.toggle("over", length > this.most);
  }
}

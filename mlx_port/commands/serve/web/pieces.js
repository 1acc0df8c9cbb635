// The list of pieces: play each, speak it again, and choose the take that the speech is joined from.

import { byId, clock, element, icon } from "./dom.js";
import { colored } from "./editor.js";

export class PieceList extends EventTarget {
  constructor() {
    super();
    [this.card, this.list] = [byId("pieces-card"), byId("pieces")];
  }

  /** Show the pieces of a speech. waiting: the place of one that will be spoken again, or null. */
  show(speech, cues, waiting) {
    const focused = this.list.contains(document.activeElement) ? document.activeElement.id : "";
    this.card.hidden = speech.pieces.length === 0;
    this.list.replaceChildren(...speech.pieces.map((piece, place) => this.item(piece, place, cues, waiting)));
    if (focused) byId(focused)?.focus({ preventScroll: true });
  }

  item(piece, place, cues, waiting) {
    const { start, end } = cues?.[place] ?? piece;
    const times = element("span", { className: "times" }, `${clock(start, 1)} – ${clock(end, 1)}`);
    const text = element("p", { className: "text" }, ...colored(piece.text));
    const again = element(
      "button",
      {
        id: `again-${place}`,
        type: "button",
        className: "quiet",
        disabled: piece.again === null,
        "aria-pressed": waiting === place,
        title: piece.again === null ? "Only the whole text keeps this voice; add a recording." : "",
        onclick: () => this.tell("again", { place }),
      },
      icon("again"),
      waiting === place ? "Waits…" : "Speak again",
      element("span", { className: "hidden" }, ` piece ${place + 1}`),
    );
    const takes = piece.takes.map((take, number) => this.take(piece, place, take, number));
    const label = `Take of piece ${place + 1} that is kept`;
    const group = element("div", { className: "takes", role: "radiogroup", "aria-label": label }, ...takes);
    group.hidden = takes.length === 0;
    return element("li", {}, times, text, element("div", { className: "row" }, group, again));
  }

  take(piece, place, take, number) {
    const name = `take-${place}`;
    const several = piece.takes.length > 1;
    const play = element(
      "button",
      {
        id: `play-${place}-${number}`,
        type: "button",
        className: "round small",
        "aria-label": `Play piece ${place + 1}${several ? `, take ${number + 1}` : ""}`,
        onclick: () => this.tell("play", { place, number }),
      },
      icon("play"),
    );
    if (!several) return play;
    const choose = element("input", {
      id: `${name}-${number}`,
      type: "radio",
      name,
      checked: piece.kept === number,
      onchange: () => this.tell("keep", { place, number }),
    });
    const seed = take.seed === undefined ? "" : element("span", { className: "help" }, ` seed ${take.seed}`);
    const label = element("label", {}, choose, ` Take ${number + 1}`, seed);
    return element("span", { className: "take" }, play, label);
  }

  tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}

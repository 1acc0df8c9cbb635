// The voices: a choice of the server's, and the removal of one.

import { ask, askJson } from "./api.js";
import { byId, element } from "./dom.js";

export class Voices extends EventTarget {
  constructor() {
    super();
    [this.field, this.help, this.removal] = [byId("voice"), byId("voice-help"), byId("remove-voice")];
    this.recorded = [];
    this.field.addEventListener("change", () => this.explain());
    this.removal.addEventListener("click", () => this.remove());
  }

  get chosen() {
    return this.field.value;
  }

  /** Fit a model, as the server describes it. */
  fit(model) {
    this.model = model;
    this.explain();
  }

  /** Read the list again. chosen: the voice to choose, by default the one that is chosen now. */
  async refresh(chosen = this.chosen) {
    const { voices } = await askJson("v1/audio/voices");
    this.recorded = voices.filter((voice) => voice.recordings);
    const named = voices.filter((voice) => !voice.recordings);
    const group = (label, all) =>
      element("optgroup", { label }, ...all.map(({ id }) => element("option", { value: id }, id)));
    const groups = [group("Your recordings", this.recorded), group("Names without a recording", named)];
    this.field.replaceChildren(...groups.filter((each) => each.children.length));
    if (voices.some((voice) => voice.id === chosen)) this.field.value = chosen;
    else this.field.value = named[0]?.id ?? voices[0].id;
    this.explain();
  }

  explain() {
    if (!this.model) return;
    const voice = this.recorded.find((each) => each.id === this.chosen);
    this.removal.disabled = !voice;
    const own = this.model.own_speakers.map((name, place) => `[S${place + 1}] ${name}`);
    if (voice && this.model.recordings === 0) {
      const why = own.length ? `speaks only as ${own.join(" and ")}` : "takes no recording";
      this.help.textContent = `This model ${why}; choose a name without a recording.`;
    } else if (voice) {
      const all = voice.recordings.map(({ seconds }) => `${seconds.toFixed(1)} s`);
      this.help.textContent = `Speaks like a recording of ${all.join(" and ")}.`;
    } else if (this.model.voices.length) {
      this.help.textContent = this.model.voices.includes(this.chosen)
        ? "One of the model’s own voices."
        : "This name stands for one of the model’s own voices.";
    } else if (own.length) {
      this.help.textContent = `The model’s own speakers, ${own.join(" and ")}; each name has its own seed.`;
    } else if (!this.model.needs_voice) {
      this.help.textContent = "The model’s own voice; each name has its own seed, so it is steady.";
    } else if (this.recorded.length) {
      this.help.textContent = "This name stands for one of your recordings.";
    } else {
      this.help.textContent = `${this.model.title} speaks only with a recording. Add a voice first.`;
    }
  }

  async remove() {
    const name = this.chosen;
    if (!confirm(`Remove the voice ${name} and its recording from the server?`)) return;
    try {
      await ask(`v1/audio/voices/${encodeURIComponent(name)}`, { method: "DELETE" });
      await this.refresh("");
      this.dispatchEvent(new CustomEvent("removed", { detail: name }));
    } catch (error) {
      this.dispatchEvent(new CustomEvent("failed", { detail: error }));
    }
  }
}

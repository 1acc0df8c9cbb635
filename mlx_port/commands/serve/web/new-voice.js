// The dialog that adds a voice: recordings from files or the microphone, transcripts, consent.

import { ask } from "./api.js";
import { byId, clock, element, show } from "./dom.js";
import { record } from "./recorder.js";
import { worded } from "./words.js";

const NEEDS = {
  needed: "A transcript, word for word, is needed.",
  optional: "A transcript makes the likeness better.",
  unused: "This model needs no transcript.",
};

export class NewVoice extends EventTarget {
  constructor() {
    super();
    [this.dialog, this.list, this.error] = [byId("voice-dialog"), byId("recordings"), byId("voice-error")];
    byId("add-voice").addEventListener("click", () => this.open());
    byId("add-recording").addEventListener("click", () => this.append());
    byId("voice-cancel").addEventListener("click", () => this.dialog.close());
    byId("voice-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    this.dialog.addEventListener("close", () => this.recordings.forEach((each) => each.drop()));
    this.recordings = [];
  }

  /** Fit a model, as the server describes it. */
  fit(model, limits) {
    [this.model, this.limits] = [model, limits];
  }

  open() {
    byId("voice-form").reset();
    show(this.error, "");
    byId("new-help").textContent =
      `One to ${this.limits.upload_seconds} seconds of clear speech, without music. ` +
      (this.model.recordings === 0
        ? `${this.model.title}, which is chosen, takes no recording; the voice is for other models.`
        : NEEDS[this.model.transcript]);
    this.recordings = [];
    this.list.replaceChildren();
    this.append();
    this.dialog.showModal();
  }

  append() {
    const number = this.recordings.length + 1;
    const recording = new Recording(number, this.model.transcript, this.error);
    this.recordings.push(recording);
    this.list.append(recording.box);
    byId("add-recording").hidden = this.model.recordings === number;
  }

  async send() {
    const form = new FormData();
    form.append("name", byId("voice-name").value);
    form.append("consent", String(byId("agreed").checked));
    if (byId("consent").value.trim()) form.append("consent_note", byId("consent").value);
    const given = this.recordings.some((each) => each.transcript);
    for (const each of this.recordings) {
      if (!each.file) return show(this.error, "Choose a file, or record one.");
      form.append("audio_sample", each.file, "recording");
      if (given) form.append("transcript", each.transcript);
    }
    byId("voice-save").disabled = true;
    try {
      await ask("v1/audio/voices", { method: "POST", body: form });
      this.dialog.close();
      const name = byId("voice-name").value;
      this.dispatchEvent(new CustomEvent("added", { detail: { name, form } }));
    } catch (error) {
      show(this.error, worded(error));
    } finally {
      byId("voice-save").disabled = false;
    }
  }
}

/** One recording of the dialog: its file or what was recorded, to be heard, and its transcript. */
class Recording {
  constructor(number, transcript, error) {
    const id = `recording-${number}`;
    this.error = error;
    this.input = element("input", { type: "file", id, accept: "audio/*" });
    this.button = element("button", { type: "button", className: "record" }, "Record");
    this.level = element("meter", { min: 0, max: 1, value: 0, "aria-label": "Level", hidden: true });
    this.audio = element("audio", { controls: true, hidden: true, "aria-label": "The recording" });
    this.text = element("textarea", { id: `${id}-text`, rows: 2, required: transcript === "needed" });
    const legend = number === 1 ? "Recording" : `Recording of speaker ${number}`;
    this.box = element(
      "fieldset",
      {},
      element("legend", {}, legend),
      element("label", { htmlFor: id, className: "hidden" }, "Sound file"),
      element("div", { className: "row" }, this.input, element("span", {}, "or"), this.button, this.level),
      this.audio,
      element("label", { htmlFor: `${id}-text` }, "Transcript"),
      this.text,
    );
    this.input.addEventListener("change", () => this.keep(this.input.files[0]));
    this.button.addEventListener("click", () => (this.finish ? this.stop() : this.start()));
  }

  get transcript() {
    return this.text.value.trim();
  }

  keep(file) {
    this.file = file;
    URL.revokeObjectURL(this.audio.src);
    this.audio.hidden = !file;
    if (file) this.audio.src = URL.createObjectURL(file);
  }

  async start() {
    show(this.error, "");
    this.button.disabled = true;
    try {
      this.finish = await record((seconds, level) => {
        this.button.textContent = `Stop recording, ${clock(seconds, 1)}`;
        this.level.value = Math.max(level, 0.9 * this.level.value);
      });
      this.level.hidden = false;
    } catch (error) {
      show(this.error, error.message);
    }
    this.button.disabled = false;
  }

  async stop() {
    const finish = this.finish;
    this.finish = null;
    this.level.hidden = true;
    this.button.textContent = "Record again";
    this.input.value = "";
    this.keep(await finish());
  }

  /** The dialog is closed. */
  drop() {
    this.finish?.();
    this.finish = null;
    URL.revokeObjectURL(this.audio.src);
  }
}

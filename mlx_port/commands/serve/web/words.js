// Messages of the server in the words of the page: a field is called as its label.

import { titled } from "./options.js";

const LABELS = {
  input: "Script",
  text: "Script",
  audio_sample: "Recording",
  transcript: "Transcript",
  consent: "Consent",
  name: "Name",
  voice: "Voice",
  model: "Model",
};

/** The message of an error, without names of the API's fields. */
export function worded({ message, param }) {
  const [, field, rest] = /^([a-z_]+)(?:\[\d+\])?: (.*)$/s.exec(message) ?? [null, param, message];
  const plain = rest.replaceAll(/--[a-z-]+ \(([a-z_]+)=True\)/g, "$1").replaceAll(/\b(?:[a-z]+_)+[a-z]+\b/g, label);
  return message === rest ? plain : `${label(field)}: ${plain}`;
}

const label = (field) => LABELS[field] ?? titled(field);

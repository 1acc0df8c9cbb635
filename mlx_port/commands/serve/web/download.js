// Files: the speech in a format of the server, its captions.

import { ask, post } from "./api.js";
import { element } from "./dom.js";

/** Encode a sound and save it. Throws as `ask`. */
export async function saveSound({ samples, rate }, format) {
  const headers = { "content-type": `audio/pcm;rate=${rate};channels=1` };
  const init = { method: "POST", headers, body: samples };
  const response = await ask(`v1/audio/encode?response_format=${format}`, init);
  await save(response, `speech.${format}`);
}

/** Write captions and save them. format: "srt" or "vtt". Throws as `ask`. */
export async function saveCaptions(cues, format) {
  await save(await post("v1/audio/captions", { format, cues }), `speech.${format}`);
}

async function save(response, name) {
  const href = URL.createObjectURL(await response.blob());
  element("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}

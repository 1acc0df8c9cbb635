// A speech: what was asked for, its sound as it arrives, its pieces with all their takes.

import { events, post } from "./api.js";
import { Sound, faded, joined } from "./sound.js";

/** Ask for a speech and read it. heard: called after every event, with it. Throws as `ask` and `events`. */
export async function speak(body, signal, heard) {
  const asked = { ...body, response_format: "wav", stream_format: "sse", pieces: true };
  const response = await post("v1/audio/speech", asked, { signal });
  const speech = new Speech(body, response.headers);
  try {
    for await (const event of events(response)) {
      speech.take(event);
      heard(speech, event);
    }
  } finally {
    speech.end();
  }
  return speech;
}

export class Speech {
  constructor(body, headers) {
    this.body = body;
    this.seed = headers.get("x-seed");
    this.expected = Number(headers.get("x-expected-seconds"));
    this.sound = new Sound(Number(headers.get("x-sample-rate")));
    this.pieces = [];
  }

  get rate() {
    return this.sound.rate;
  }

  get seconds() {
    return this.sound.length / this.rate;
  }

  take(event) {
    if (event.type === "speech.audio.delta") this.sound.append(event.audio);
    if (event.type === "speech.audio.piece") this.pieces.push({ ...event, takes: [], kept: 0 });
  }

  /** Nothing more comes: cut the sound into its pieces and what is between them. */
  end() {
    this.sound.complete = true;
    const at = (seconds) => Math.round(seconds * this.rate);
    let stop = 0;
    for (const piece of this.pieces) {
      piece.before = this.sound.slice(stop, at(piece.start));
      stop = at(piece.end);
      piece.takes.push({ samples: this.sound.slice(at(piece.start), stop), words: within(piece, piece.start) });
    }
    this.tail = this.sound.slice(stop);
  }

  /** Add a take of a piece, another speech of its text. */
  add(piece, speech) {
    const last = this.pieces.length - 1;
    const place = this.pieces.indexOf(piece);
    const samples = faded(speech.sound.slice(0), this.rate, place > 0, place < last);
    const words = speech.pieces.length === 1 ? within(speech.pieces[0], 0) : undefined;
    piece.takes.push({ samples, seed: speech.seed, words });
  }

  /** Join the kept takes; returns samples and the times of the pieces. */
  joined() {
    const [parts, cues] = [[], []];
    let length = 0;
    const put = (part) => {
      parts.push(part);
      length += part.length;
      return length / this.rate;
    };
    for (const { text, before, takes, kept } of this.pieces) {
      const { samples, words } = takes[kept];
      const start = put(before);
      const end = put(samples);
      const timed = words?.map((word) => ({ text: word.text, start: start + word.start, end: start + word.end }));
      cues.push({ text, start, end, ...(timed ? { words: timed } : {}) });
    }
    put(this.tail);
    return { samples: joined(parts), cues };
  }
}

/** The words of a piece, in seconds from a moment. */
function within({ words }, start) {
  return words?.map((word) => ({ text: word.text, start: word.start - start, end: word.end - start }));
}

// Samples, 16 bits each, as a speech brings them.

const HEADER = 44; // bytes of a WAV file before its samples
const FADE = 0.02; // seconds, as the server joins pieces

/** A sound that grows. read: of the bytes of a WAV file. */
export class Sound {
  constructor(rate) {
    this.rate = rate;
    this.length = 0;
    this.complete = false;
    this.samples = new Int16Array(rate);
    this.skip = HEADER;
    this.odd = new Uint8Array(0);
  }

  /** Append bytes, given in base64. */
  append(base64) {
    const text = atob(base64);
    const bytes = new Uint8Array(this.odd.length + text.length);
    bytes.set(this.odd);
    for (let place = 0; place < text.length; place++) bytes[this.odd.length + place] = text.charCodeAt(place);
    const start = Math.min(this.skip, bytes.length);
    this.skip -= start;
    const end = bytes.length - ((bytes.length - start) % 2);
    this.odd = bytes.slice(end);
    const view = new DataView(bytes.buffer, start, end - start);
    this.reserve(view.byteLength / 2);
    for (let place = 0; place < view.byteLength; place += 2) this.samples[this.length++] = view.getInt16(place, true);
  }

  slice(start, stop = this.length) {
    return this.samples.slice(start, Math.min(stop, this.length));
  }

  reserve(more) {
    if (this.length + more <= this.samples.length) return;
    const larger = new Int16Array(2 * (this.length + more));
    larger.set(this.samples);
    this.samples = larger;
  }
}

/** A sound that is complete. */
export function whole(samples, rate) {
  return { samples, rate, length: samples.length, complete: true };
}

/** Fade a sound in and out, where others are before or after it. */
export function faded(samples, rate, before, after) {
  const made = samples.slice();
  const length = Math.min(Math.round(FADE * rate), made.length);
  for (let place = 0; place < length; place++) {
    const rise = 0.5 - 0.5 * Math.cos((Math.PI * (place + 1)) / (length + 1));
    if (before) made[place] = Math.round(made[place] * rise);
    if (after) made[made.length - 1 - place] = Math.round(made[made.length - 1 - place] * rise);
  }
  return made;
}

/** Join sounds one after the other. */
export function joined(parts) {
  const made = new Int16Array(parts.reduce((sum, part) => sum + part.length, 0));
  let place = 0;
  for (const part of parts) {
    made.set(part, place);
    place += part.length;
  }
  return made;
}

/** Write a WAV file of samples from -1 to 1. */
export function wav(samples, rate) {
  const view = new DataView(new ArrayBuffer(HEADER + 2 * samples.length));
  const text = (place, word) => [...word].forEach((letter, at) => view.setUint8(place + at, letter.charCodeAt(0)));
  text(0, "RIFF");
  view.setUint32(4, 36 + 2 * samples.length, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, rate, true);
  view.setUint32(28, 2 * rate, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  text(36, "data");
  view.setUint32(40, 2 * samples.length, true);
  samples.forEach((sample, place) => {
    view.setInt16(HEADER + 2 * place, Math.round(32767 * Math.max(-1, Math.min(1, sample))), true);
  });
  return new Blob([view], { type: "audio/wav" });
}

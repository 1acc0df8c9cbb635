// Plays a sound, also one that still grows, in blocks that are scheduled a little ahead.

const BLOCK = 0.25; // seconds
const AHEAD = 0.8;
const DELAY = 0.05; // before the first block

export class Player extends EventTarget {
  constructor() {
    super();
    this.contexts = new Map();
    this.stop();
  }

  get playing() {
    return this.timer !== null;
  }

  /** The sample that is heard now; where a sound was stopped, the last one. */
  get position() {
    if (!this.playing) return this.rested;
    const now = this.context.currentTime;
    const block = this.blocks.findLast((each) => each.at <= now) ?? this.blocks[0];
    if (!block) return this.next;
    const inside = Math.round((now - block.at) * this.sound.rate);
    return block.start + Math.max(0, Math.min(inside, block.count));
  }

  /** Play a sound: { rate, samples, length, complete }. from, to: samples. */
  play(sound, from = 0, to = Infinity) {
    this.stop();
    this.context = this.contexts.get(sound.rate) ?? new AudioContext({ sampleRate: sound.rate });
    this.contexts.set(sound.rate, this.context);
    this.context.resume();
    [this.sound, this.next, this.to] = [sound, from, to];
    this.at = this.context.currentTime + DELAY;
    this.timer = setInterval(() => this.fill(), 60);
    this.fill();
    this.dispatchEvent(new Event("change"));
  }

  stop() {
    const was = this.timer !== undefined && this.timer !== null;
    if (was) {
      this.rested = this.position;
      clearInterval(this.timer);
      for (const { source } of this.blocks) source.stop();
    } else this.rested ??= 0;
    [this.timer, this.blocks] = [null, []];
    if (was) this.dispatchEvent(new Event("change"));
  }

  fill() {
    const { context, sound } = this;
    const end = Math.min(sound.length, this.to);
    while (this.next < end && this.at < context.currentTime + AHEAD) {
      const count = Math.min(Math.ceil(BLOCK * sound.rate), end - this.next);
      const buffer = context.createBuffer(1, count, sound.rate);
      const data = buffer.getChannelData(0);
      for (let place = 0; place < count; place++) data[place] = sound.samples[this.next + place] / 32768;
      const source = new AudioBufferSourceNode(context, { buffer });
      source.connect(context.destination);
      const at = Math.max(this.at, context.currentTime + 0.01);
      source.start(at);
      this.blocks.push({ at, start: this.next, count, source });
      [this.next, this.at] = [this.next + count, at + count / sound.rate];
    }
    const done = (sound.complete || this.to <= sound.length) && this.next >= end;
    if (done && context.currentTime >= this.at) {
      this.stop();
      this.rested = 0;
      this.dispatchEvent(new Event("end"));
    }
  }
}

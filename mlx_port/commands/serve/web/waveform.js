// The waveform: bars of a sound on a canvas, the played part darker; a slider for keyboard and pointer.

import { byId, clock } from "./dom.js";

const BAR = 3; // pixels, with the gap
const STEP = 1; // seconds of an arrow key, five of them with Shift

export class Waveform extends EventTarget {
  constructor() {
    super();
    [this.slider, this.canvas, this.clock] = [byId("position"), byId("wave"), byId("clock")];
    this.sound = null;
    this.position = 0;
    this.expected = 0;
    this.marks = [];
    this.selected = null;
    new ResizeObserver(() => this.draw()).observe(this.slider);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    this.slider.addEventListener("pointerdown", (event) => this.point(event));
    this.slider.addEventListener("keydown", (event) => this.key(event));
  }

  /** Show a sound. expected: its length in seconds while it grows.  marks: where pieces begin, in seconds. */
  show(sound, expected = 0, marks = []) {
    [this.sound, this.expected, this.marks] = [sound, expected, marks];
    this.draw();
  }

  /** Show what is heard. position: in samples.  selected: a piece's first and last second, or null. */
  move(position, selected = this.selected) {
    [this.position, this.selected] = [position, selected];
    this.draw();
  }

  draw() {
    const { sound, canvas, slider } = this;
    if (!sound) return;
    const seconds = sound.length / sound.rate;
    const now = this.position / sound.rate;
    slider.setAttribute("aria-valuemax", seconds.toFixed(1));
    slider.setAttribute("aria-valuenow", now.toFixed(1));
    slider.setAttribute("aria-valuetext", `${clock(now)} of ${clock(seconds)}`);
    this.clock.textContent = `${clock(now)} / ${clock(seconds)}`;
    const { width, height } = slider.getBoundingClientRect();
    const scale = devicePixelRatio;
    [canvas.width, canvas.height] = [width * scale, height * scale];
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    this.bars(pen, width, height, seconds);
  }

  bars(pen, width, height, seconds) {
    const { sound } = this;
    const style = getComputedStyle(this.slider);
    const [played, coming, ground, line] = ["--played", "--coming", "--selected", "--mark"].map((name) =>
      style.getPropertyValue(name),
    );
    const shown = Math.max(sound.complete ? 0 : this.expected, seconds, 0.1);
    const x = (at) => (at / shown) * width;
    if (this.selected) {
      pen.fillStyle = ground;
      pen.fillRect(x(this.selected[0]), 0, x(this.selected[1]) - x(this.selected[0]), height);
    }
    pen.fillStyle = line;
    for (const mark of this.marks) if (mark) pen.fillRect(Math.round(x(mark)) - 1, 0, 1, height);
    const samples = (BAR / width) * shown * sound.rate;
    const now = (this.position / sound.rate / shown) * width;
    for (let left = 0; left < x(seconds); left += BAR) {
      const level = peak(sound, Math.floor((left / BAR) * samples), Math.ceil((left / BAR + 1) * samples));
      const size = Math.max(2, Math.sqrt(level) * (height - 6));
      pen.fillStyle = left < now ? played : coming;
      pen.beginPath();
      pen.roundRect(left, (height - size) / 2, BAR - 1, size, 1);
      pen.fill();
    }
  }

  point(event) {
    if (!this.sound?.complete) return;
    const seek = ({ clientX }) => {
      const { left, width } = this.slider.getBoundingClientRect();
      this.seek(((clientX - left) / width) * this.sound.length);
    };
    seek(event);
    this.slider.setPointerCapture(event.pointerId);
    this.slider.addEventListener("pointermove", seek);
    this.slider.addEventListener("pointerup", () => this.slider.removeEventListener("pointermove", seek), {
      once: true,
    });
  }

  key(event) {
    if (!this.sound?.complete) return;
    const step = STEP * this.sound.rate * (event.shiftKey ? 5 : 1);
    const places = {
      ArrowLeft: this.position - step,
      ArrowDown: this.position - step,
      ArrowRight: this.position + step,
      ArrowUp: this.position + step,
      Home: 0,
      End: this.sound.length,
    };
    if (event.key === " ") this.dispatchEvent(new Event("toggle"));
    else if (event.key in places) this.seek(places[event.key]);
    else return;
    event.preventDefault();
  }

  seek(sample) {
    const place = Math.round(Math.max(0, Math.min(sample, this.sound.length)));
    this.dispatchEvent(new CustomEvent("seek", { detail: place }));
  }
}

/** The largest sample of a part, from 0 to 1; of a long part every few samples. */
function peak({ samples, length }, start, stop) {
  const [end, stride] = [Math.min(stop, length), Math.max(1, Math.floor((stop - start) / 200))];
  let most = 0;
  for (let place = start; place < end; place += stride) most = Math.max(most, Math.abs(samples[place]));
  return most / 32768;
}

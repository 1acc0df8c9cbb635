// Records the microphone as a WAV file.

import { wav } from "./sound.js";

/** Begin to record. heard: called with the seconds so far and the level of the latest block, 0 to 1.
    Returns a function that ends it and returns the file. Throws if there is no microphone. */
export async function record(heard) {
  if (!navigator.mediaDevices) {
    throw new Error("The browser records only on localhost or over https. Choose a file instead.");
  }
  let stream;
  try {
    const audio = { echoCancellation: false, noiseSuppression: false, autoGainControl: false };
    stream = await navigator.mediaDevices.getUserMedia({ audio });
  } catch (error) {
    throw new Error(`There is no microphone, or the browser may not use it (${error.name}).`);
  }
  const context = new AudioContext();
  await context.audioWorklet.addModule("page/recorder-worklet.js");
  const node = new AudioWorkletNode(context, "recorder", { numberOfOutputs: 0 });
  const blocks = [];
  let length = 0;
  node.port.onmessage = ({ data }) => {
    blocks.push(data);
    length += data.length;
    heard(length / context.sampleRate, Math.max(...data.map(Math.abs)));
  };
  context.createMediaStreamSource(stream).connect(node);
  return async () => {
    node.port.onmessage = null;
    for (const track of stream.getTracks()) track.stop();
    const [samples, rate] = [new Float32Array(length), context.sampleRate];
    let place = 0;
    for (const block of blocks) {
      samples.set(block, place);
      place += block.length;
    }
    await context.close();
    return wav(samples, rate);
  };
}

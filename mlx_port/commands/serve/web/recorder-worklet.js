// Passes the microphone's samples on, block by block.

registerProcessor(
  "recorder",
  class extends AudioWorkletProcessor {
    process([[channel]]) {
      if (channel) this.port.postMessage(channel.slice());
      return true;
    }
  },
);

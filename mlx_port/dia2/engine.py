"""Dia2's engine: both networks, step by step, and the codec."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mlx_port.codecs.mimi import DecodeMemory, Mimi
from mlx_port.dia2.dia2 import Dia2
from mlx_port.dia2.frames import Frames
from mlx_port.dia2.guard import fault
from mlx_port.host import Host
from tts_core.codecs.policy import CodecPolicy
from tts_core.config import Configs
from tts_core.dia2.run import Run
from tts_core.dia2.sampling import Sampling
from tts_core.nn.noise import Noise


class Dia2Engine:
    """A Dia2 and its codec. tokenizer: the text of its file."""

    def __init__(self, network: Dia2, codec: Mimi, tokenizer: str):
        self.network, self.codec, self.tokenizer = network, codec, tokenizer
        self.configs: Configs = {"dia2": network.config, "mimi": codec.config}
        self.host = Host(network.transformer.text_embed.embedding)

    @property
    def policy(self) -> CodecPolicy:
        """The codec's windows."""
        return self.codec.policy

    def steps(self, run: Run, sampling: Sampling, noise: Noise) -> Iterator[Run]:
        """Read the prefix, then run step by step; yield the run before its first step and after each."""
        config, frames = self.network.config, Frames(self.network, sampling)
        shape = (1 + config.n_streams, max(config.audio_vocab_size, config.action_vocab_size))
        read = [run.warm_up()]
        if len(read[0]):
            frames.read(self.host.to_device(read[0]), 0)
        yield run
        while not run.is_done:
            read.append(run.tokens()[None])
            frames.read(self.host.to_device(read[-1]), run.step)
            uniform = None if sampling.is_greedy else noise.uniform(run.step - run.start, shape)
            drawn = None if uniform is None else self.host.to_device(uniform)
            acted = frames.action(None if drawn is None else drawn[0, : config.action_vocab_size])
            action = int(self.host.to_host(acted)[0])
            text = run.act(max(action, 0))
            drawn = None if drawn is None else drawn[1:, : config.audio_vocab_size]
            codes = self.host.to_host(frames.codes(*text, drawn))
            if action < 0 or codes.min() < 0:
                raise fault(self.network, self.host.to_device(np.concatenate(read)), text)
            run.accept(codes)
            yield run

    def encode(self, samples: np.ndarray) -> np.ndarray:
        """Encode samples. (L,) float32 → codes (Q, P) int32."""
        return self.host.to_host(self.codec.encode(samples[None], self.network.config.n_streams))[0]

    def decode(self, codes: np.ndarray, memory: DecodeMemory | None) -> tuple[np.ndarray, DecodeMemory]:
        """Decode the next frames of a stream. (Q, F) int32 → samples (L,) float32, and the next memory."""
        samples, memory = self.codec.decode_piece(codes[None], memory)
        return self.host.to_host(samples)[0].astype(np.float32), memory

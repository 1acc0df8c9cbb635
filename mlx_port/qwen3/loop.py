"""The loop of one text: a first code, the other codes of its frame, then the talker's next step.

Upstream: QwenLM/Qwen3-TTS@022e286, Apache-2.0.
Differs from upstream: `max_frames` counts frames; upstream's max_new_tokens is one more.
"""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx
import numpy as np

from mlx_port.qwen3.qwen3 import Qwen3
from mlx_port.qwen3.sampling import allow, candidates, draw, penalize
from tts_core.nn.noise import Noise
from tts_core.qwen3.sampling import Sampling


class Loop:
    """One text's state. prompt: (1, T, D) embeddings.  trailing: text ids added to the first frames."""

    def __init__(
        self, network: Qwen3, prompt: mx.array, trailing: tuple[int, ...], *, sampling: Sampling, noise: Noise
    ):
        self.talker, self.config = network.talker, network.config
        self.sampling, self.noise = sampling, noise
        self.cache = self.talker.new_cache()
        texts = [*trailing, self.config.tts_pad_id]
        self.texts = self.talker.embed_text(mx.array([texts]))
        self.hidden = self.talker(prompt, 0, self.cache)[:, -1:]
        self.position = prompt.shape[1]
        self.seen = mx.zeros((1, self.config.vocab_size), mx.bool_)

    def frames(self, max_frames: int) -> Iterator[mx.array]:
        """Yield frames, (1, Q) each, until speech ends."""
        for step in range(max_frames):
            uniform = self.uniform(step)
            first = self.first_code(step, uniform[..., : self.config.vocab_size])
            if first.item() == self.config.codec_eos_id:
                return
            frame = self.other_codes(first, uniform[..., self.config.vocab_size :])
            yield frame
            if step + 1 < max_frames:
                self.advance(step, frame)

    def uniform(self, step: int) -> mx.array:
        """Draw all numbers of a step. → (1, V + (Q - 1) V')."""
        config = self.config
        count = config.vocab_size + (config.n_codebooks - 1) * config.codebook_size
        drawn = np.asarray(self.noise.uniform(step, (count,)))
        return mx.array(drawn)[None]

    def first_code(self, step: int, uniform: mx.array) -> mx.array:
        """Draw the first code of a frame, or the end of speech. → (1,)."""
        logits = penalize(self.talker.logits(self.hidden[:, 0]), self.seen, self.sampling.repetition_penalty)
        scores = candidates(allow(logits, self.config.codec_eos_id, step), self.sampling.first)
        first = draw(scores, self.sampling.first, uniform)
        ids = mx.arange(self.config.vocab_size)
        self.seen = self.seen | (ids == first[:, None])
        return first

    def other_codes(self, first: mx.array, uniform: mx.array) -> mx.array:
        """Draw the other codes. first: (1,) → (1, Q)."""
        predictor, size = self.talker.code_predictor, self.config.codebook_size
        cache, codes = predictor.new_cache(), [first]
        x = mx.concatenate([self.hidden, self.talker.model.codec_embedding(first)[:, None]], axis=1)
        for stage in range(predictor.stages):
            scores = candidates(predictor(stage, x, cache), self.sampling.others)
            codes.append(draw(scores, self.sampling.others, uniform[:, stage * size : (stage + 1) * size]))
            x = predictor.embed(stage, codes[-1])[:, None]
        return mx.stack(codes, axis=1)

    def advance(self, step: int, frame: mx.array) -> None:
        """Read a frame and the text that belongs to it. frame: (1, Q)."""
        place = min(step, self.texts.shape[1] - 1)
        x = self.talker.embed_frames(frame[:, :, None]) + self.texts[:, place : place + 1]
        self.hidden = self.talker(x, self.position, self.cache)
        self.position += 1

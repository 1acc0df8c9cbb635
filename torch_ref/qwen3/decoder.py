"""Qwen3-TTS in a running batch: a frame of each text, read with the text that belongs to it, then the next.

Upstream: QwenLM/Qwen3-TTS@022e286, Apache-2.0.
Differs from upstream, whose batch begins and ends together: a text has its own row, position, sampling and
random numbers; its codes are those that it has by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from torch_ref.batch import RunningBatch
from torch_ref.guard import watched
from torch_ref.host import Host
from torch_ref.layers.row_cache import RowCache, RowPositions
from torch_ref.limits.independent import sequences_apart
from torch_ref.qwen3.qwen3 import Qwen3, Talker
from torch_ref.sampling import draw_rows
from tts_core.errors import GenerationError
from tts_core.nn.guard import NotFiniteError
from tts_core.nn.host import Device
from tts_core.nn.packed import Packed
from tts_core.nn.sampling import TextSettings
from tts_core.qwen3.config import SUPPRESSED
from tts_core.qwen3.layout import FIRST, OTHERS, Qwen3Inputs, allowed_ids
from tts_core.speaking.decoder import BatchDecoder, TextRead
from tts_core.speaking.rows import Draws


class Qwen3State(NamedTuple):
    """Of N texts.

    frames: (N, Q) int64, the last ones, as drawn.
    seen: (N, V) bool, first codes that were drawn.
    """

    frames: Tensor
    seen: Tensor


class Qwen3Decoder(BatchDecoder):
    """The talker and its code predictor."""

    def __init__(self, network: Qwen3):
        self.network, self.talker, self.config = network, network.talker, network.config
        self.host = Host(self.talker.codec_head)
        self.numbers = (self.config.numbers,)
        self.settings = [TextSettings(sampler, self.host) for sampler in (FIRST, OTHERS)]
        self.allowed = self.host.to_device(
            allowed_ids(self.config.vocab_size, SUPPRESSED, self.config.codec_eos_id)
        )

    def read(self, texts: Sequence[Qwen3Inputs]) -> list[TextRead]:
        talker, config = self.talker, self.config
        packed = Packed.of(text.positions for text in texts)
        caches = packed.caches(talker.model.layers, self.host.to_device)
        with sequences_apart(self.network, packed):
            hidden = talker(embedded(talker, self.host, texts), caches[0].length, caches)
        state = Qwen3State(
            torch.zeros(1, config.n_codebooks, dtype=torch.int64, device=hidden.device),
            torch.zeros(1, config.vocab_size, dtype=torch.bool, device=hidden.device),
        )
        return [
            TextRead(state, [cache.of(span) for cache in caches], hidden[:, span.stop - 1])
            for span in packed.spans
        ]

    def step(
        self, state: Qwen3State, given: np.ndarray, at: RowPositions, caches: Sequence[RowCache]
    ) -> Tensor:
        """Read the last frames, with ids of the text. → (N, D), normed."""
        x = self.talker.embed_frames(state.frames.clamp(min=0)[:, :, None])
        x = x + self.talker.embed_text(self.host.to_device(given).long())
        return self.talker(x, at.start, caches)[:, 0]

    def draw(
        self, made: Tensor, state: Qwen3State, draws: Draws, uniform: Tensor, answers: np.ndarray
    ) -> tuple[Tensor, Qwen3State]:
        """Draw the next frames, whose first code may be the end of speech. made: (N, D).  → ids (N, Q)."""
        talker, predictor, size = self.talker, self.talker.code_predictor, self.config.codebook_size
        logits = talker.logits(made)
        first = self._first_codes(logits, state.seen, draws, uniform[:, : self.config.vocab_size])
        sampler, settings = self.settings[1].of([setting.numbers[1] for setting in draws.settings])
        table = sampler.named(settings, 2)
        finite, codes, cache = logits.isfinite().all(dim=-1), list[Tensor](), predictor.new_cache()
        x = torch.stack((made, talker.model.codec_embedding(first)), dim=1)
        for stage, numbers in enumerate(uniform[:, self.config.vocab_size :].split(size, dim=-1)):
            logits = predictor(stage, x, cache)
            codes.append(draw_rows([logits], table, numbers, sampler))
            finite &= logits.isfinite().all(dim=-1)
            x = predictor.embed(stage, codes[-1])[:, None]
        frames = torch.stack((torch.where(finite, first, -1), *codes), dim=1)
        return frames, Qwen3State(frames, state.seen.scatter(1, first[:, None], True))

    def _first_codes(self, logits: Tensor, seen: Tensor, draws: Draws, uniform: Tensor) -> Tensor:
        """Draw the first code of each frame, or the end of speech. (N, V) each → (N,)."""
        sampler, settings = self.settings[0].of([setting.numbers[0] for setting in draws.settings])
        steps = self.host.to_device(draws.steps[:, None])
        inputs = {"allowed": self.allowed, "counts": seen, "step": steps, "end": self.config.codec_eos_id}
        return draw_rows([logits], sampler.named(settings, 2), uniform, sampler, **inputs)


@torch.inference_mode()
def make_slots(network: Qwen3, *, texts: int, capacity: int) -> RunningBatch:
    """Open a running batch of at most `texts` texts of at most `capacity` positions."""
    return RunningBatch(Qwen3Decoder(network), texts=texts, capacity=capacity)


def embedded(talker: Talker, host: Device, texts: Sequence[Qwen3Inputs]) -> Tensor:
    """Embed what is read before the speech of texts. → (1, ΣT, D)."""
    layout, speakers, frames = Qwen3Inputs.packed(texts)
    voices = None if speakers is None else host.to_device(speakers)
    codes = None if frames is None else host.to_device(frames[None]).long()
    return talker.embed_layout(layout, voices, codes)


def fault(network: Qwen3, text: Qwen3Inputs, frames: np.ndarray) -> GenerationError:
    """Build the error that names the first layer with NaN or infinity, by running a text again.

    frames: drawn before the logits that are not finite, (Q, T).
    """
    talker, host = network.talker, Host(network.talker.codec_head)
    with watched(network) as found, torch.inference_mode():
        x, cache = embedded(talker, host, [text]), talker.new_cache()
        hidden = talker(x, 0, cache)
        if frames.shape[1]:
            read = talker.embed_text(host.to_device(text.read_with(frames.shape[1])))
            spoken = talker.embed_frames(host.to_device(frames[None]).long())
            hidden = talker(spoken + read[None], x.shape[1], cache)
        talker.logits(hidden[:, -1])
    row = text.positions + frames.shape[1]
    return NotFiniteError(next(iter(found), None), host.dtype, text=1, row=row)

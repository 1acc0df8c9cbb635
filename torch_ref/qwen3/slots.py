"""Slots for texts that share Qwen3-TTS's frames: each joins and leaves between two of them.

Upstream: QwenLM/Qwen3-TTS@022e286, Apache-2.0.
Differs from upstream, whose batch begins and ends together: a text has its own row, position, sampling and
random numbers; its codes are those that it has by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ref.guard import watched
from torch_ref.host import Host
from torch_ref.layers.cache import CHUNK
from torch_ref.layers.row_cache import RowCache, RowPositions
from torch_ref.limits.independent import independent_rows
from torch_ref.qwen3.qwen3 import Qwen3, Talker
from torch_ref.qwen3.sampling import allow, candidates, draw, penalize
from torch_ref.reading import begin_read, finish_read
from tts_core.errors import GenerationError
from tts_core.nn.guard import NotFiniteError
from tts_core.qwen3.rows import Launched, Qwen3BatchRows, Qwen3Group, Qwen3Joining
from tts_core.qwen3.sampling import LEAST_FRAMES


class Qwen3Slots:
    """`texts` slots, each a row of the network; keys and values grow with the longest text.

    room: positions of a text, what is read before speech and frames.
    """

    steps, ahead = 1, 0  # of a launch, and launches before one is read

    def __init__(self, network: Qwen3, *, texts: int, room: int):
        self.talker, self.config, self.room = network.talker, network.config, room
        self.host = Host(self.talker.codec_head)
        self.plan, self.at = Qwen3BatchRows(texts), RowPositions(room)
        self.cache: list[RowCache] = []
        weight, config = self.talker.codec_head.weight, self.config
        self.hidden = weight.new_zeros(texts, 1, config.talker.hidden_size)
        self.frames = torch.zeros(texts, config.n_codebooks, dtype=torch.int64, device=weight.device)
        self.seen = torch.zeros(texts, config.vocab_size, dtype=torch.bool, device=weight.device)
        self.trailing: dict[int, Tensor] = {}  # by slot: (M + 1, D), the padding's last

    @property
    def can_step(self) -> bool:
        """True if a text takes part in the next step."""
        return self.plan.can_step

    @torch.inference_mode()
    def join(self, slot: int, text: Qwen3Joining) -> None:
        """Read what comes before a text's speech; it draws with the next step. Its slot must be free."""
        self._reserve(text.positions)
        talker, cache = self.talker, self.talker.new_cache()
        self.hidden[slot] = talker(embedded(talker, self.host, text), 0, cache)[0, -1:]
        for layer, held in zip(self.cache, cache, strict=True):
            assert held.buffers is not None
            layer.fill(slot, *(rows[0, :, : text.positions] for rows in held.buffers))
        self.trailing[slot] = self._embed([*text.layout.trailing, self.config.tts_pad_id])
        self.seen[slot] = False
        self.plan.join(slot, text)

    @torch.inference_mode()
    def feed(self, slot: int, ids: Sequence[int], *, more: bool) -> None:
        """Append ids to a text that goes on. more: it still does; if not, padding follows them."""
        self.plan.feed(slot, ids, more=more)
        if ids:
            before = self.trailing[slot]
            self.trailing[slot] = torch.cat((before[:-1], self._embed(ids), before[-1:]))

    def leave(self, slot: int) -> None:
        """Free a slot; with the last one the memory of keys and values."""
        self.plan.leave(slot)
        del self.trailing[slot]
        if not self.plan.texts:
            self.cache = []

    @torch.inference_mode()
    def launch(self, steps: int) -> Launched:
        """Draw a frame of all texts that do not wait; waits for nothing. There must be one. steps: 1.

        Returns a read of (1, texts, Q) codes: the first one is -1 where logits were not all finite, and the
        end of speech where there is no frame.
        """
        waiting = self.plan.waiting
        with independent_rows(self.talker):
            return Launched(begin_read(self._step()[None]), waiting)

    def read(self, launched: Launched) -> np.ndarray:
        """Wait for a launch. → (1, texts, Q) codes; the first is WAITED of a text that waited."""
        return launched.codes(finish_read(launched.reading))

    def _step(self) -> Tensor:
        """Draw the next frame of every text that does not wait. → (texts, Q)."""
        self._advance()
        plan, config = self.plan, self.config
        count, groups = plan.count, plan.groups()
        numbers = config.vocab_size + (config.n_codebooks - 1) * config.codebook_size
        uniform = self.host.to_device(plan.uniform(numbers))
        logits = self.talker.logits(self.hidden[:count, 0])
        first = self._first_codes(logits, uniform[:, : config.vocab_size], groups)
        first = first.clamp(max=config.vocab_size - 1)  # where logits are NaN
        rows = self.host.to_device(np.concatenate([group.rows for group in groups]))
        self.seen[rows, first[rows]] = True
        codes, finite = self._other_codes(first, uniform[:, config.vocab_size :], groups)
        self.frames[rows] = codes[rows]
        finite &= logits.isfinite().all(dim=-1)
        plan.advance()
        drawn = self.frames.clone()
        drawn[:count, 0] = torch.where(finite, first, -1)
        return drawn

    def _embed(self, ids: Sequence[int]) -> Tensor:
        """Embed ids of a text. → (M, D)."""
        return self.talker.embed_text(self.host.to_device(np.array(ids)))

    def _advance(self) -> None:
        """Read the frames that were drawn last, each with the text that belongs to it."""
        begun = self.plan.begun()
        if not begun.any():
            return
        count, positions = len(begun), self.plan.positions()
        x = self.talker.embed_frames(self.frames[:count, :, None])
        for slot, place in self.plan.trailing():
            x[slot, 0] += self.trailing[slot][place]
        last = int(positions.max())
        self._reserve(last + 1)
        at = self.host.to_device(positions).long()
        self.at.move(at, last + 1)
        with independent_rows(self.talker, 1 + positions):
            hidden = self.talker(x, at[:, None, None], self.cache)
        self.hidden[:count] = torch.where(
            self.host.to_device(begun)[:, None, None], hidden, self.hidden[:count]
        )

    def _first_codes(self, logits: Tensor, uniform: Tensor, groups: Sequence[Qwen3Group]) -> Tensor:
        """Draw the first code of each frame, or the end of speech. (R, V) each → (R,)."""
        ids = torch.zeros(len(logits), dtype=torch.int64, device=logits.device)
        for group in groups:
            rows, sampling = self.host.to_device(group.rows), group.sampling
            kept = penalize(logits[rows], self.seen[rows], sampling.repetition_penalty)
            kept = allow(kept, self.config.codec_eos_id, 0 if group.is_early else LEAST_FRAMES)
            ids[rows] = draw(candidates(kept, sampling.first), sampling.first, uniform[rows])
        return ids

    def _other_codes(
        self, first: Tensor, uniform: Tensor, groups: Sequence[Qwen3Group]
    ) -> tuple[Tensor, Tensor]:
        """Draw the other codes of each frame. (R,), (R, (Q - 1) V') → (R, Q), and whose logits are finite."""
        predictor, size = self.talker.code_predictor, self.config.codebook_size
        cache, codes = predictor.new_cache(), [first]
        embedded = self.talker.model.codec_embedding(first)[:, None]
        x = torch.cat((self.hidden[: len(first)], embedded), dim=1)
        finite = torch.ones_like(first, dtype=torch.bool)
        for stage in range(predictor.stages):
            logits, ids = predictor(stage, x, cache), torch.zeros_like(first)
            numbers = uniform[:, stage * size : (stage + 1) * size]
            for group in groups:
                rows, choice = self.host.to_device(group.rows), group.sampling.others
                ids[rows] = draw(candidates(logits[rows], choice), choice, numbers[rows])
            ids = ids.clamp(max=size - 1)  # where logits are NaN
            finite &= logits.isfinite().all(dim=-1)
            codes.append(ids)
            x = predictor.embed(stage, ids)[:, None]
        return torch.stack(codes, dim=1), finite

    def _reserve(self, positions: int) -> None:
        """Let every layer have keys and values of this many positions of each text; those there are kept."""
        config, weight = self.config.talker, self.talker.codec_head.weight
        if not self.cache:
            empty = weight.new_zeros(self.plan.slots, config.num_key_value_heads, 0, config.head_dim)
            self.cache = [RowCache(empty, empty, self.at) for _ in self.talker.model.layers]
        wanted = min(-(-positions // CHUNK) * CHUNK, self.room)
        missing = wanted - self.cache[0].keys.shape[2]
        if missing > 0:
            for layer in self.cache:
                layer.keys = F.pad(layer.keys, (0, 0, 0, missing))
                layer.values = F.pad(layer.values, (0, 0, 0, missing))


def embedded(talker: Talker, host: Host, text: Qwen3Joining) -> Tensor:
    """Embed what is read before a text's speech. → (1, T, D)."""
    speaker = None if text.speaker is None else host.to_device(text.speaker)
    frames = None if text.frames is None else host.to_device(text.frames[None]).long()
    return talker.embed_layout(text.layout, speaker, frames)


def fault(network: Qwen3, text: Qwen3Joining, frames: np.ndarray) -> GenerationError:
    """Build the error that names the first layer with NaN or infinity, by running a text again.

    frames: drawn before the logits that are not finite, (Q, T).
    """
    talker, host = network.talker, Host(network.talker.codec_head)
    with watched(network) as found, torch.inference_mode():
        x, cache = embedded(talker, host, text), talker.new_cache()
        hidden = talker(x, 0, cache)
        if frames.shape[1]:
            read = talker.embed_text(
                host.to_device(text.read_with(frames.shape[1], network.config.tts_pad_id))
            )
            spoken = talker.embed_frames(host.to_device(frames[None]).long())
            hidden = talker(spoken + read[None], x.shape[1], cache)
        talker.logits(hidden[:, -1])
    row = text.positions + frames.shape[1]
    return NotFiniteError(next(iter(found), None), host.dtype, text=1, row=row)

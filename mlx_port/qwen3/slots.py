"""Slots for texts that share Qwen3-TTS's frames: each joins and leaves between two of them.

Upstream: QwenLM/Qwen3-TTS@022e286, Apache-2.0.
Differs from upstream, whose batch begins and ends together: a text has its own row, position, sampling and
random numbers; its codes are those that it has by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from mlx_port.guard import watched
from mlx_port.host import Host
from mlx_port.layers.cache import CHUNK
from mlx_port.layers.row_cache import RowCache, RowPositions
from mlx_port.qwen3.qwen3 import Qwen3, Talker
from mlx_port.qwen3.sampling import allow, candidates, draw, penalize
from mlx_port.reading import begin_read, finish_read
from mlx_port.steps.qwen3.fused import OtherCodes, fused
from tts_core.errors import GenerationError
from tts_core.nn.guard import NotFiniteError
from tts_core.qwen3.rows import Launched, Qwen3BatchRows, Qwen3Group, Qwen3Joining
from tts_core.qwen3.sampling import LEAST_FRAMES, Qwen3Choice

FORMS_KEPT = 16  # compiled draws, one for each mixture of settings


class Qwen3Slots:
    """`texts` slots, each a row of the network; keys and values grow with the longest text.

    room: positions of a text, what is read before speech and frames.
    """

    steps, ahead = 1, 0  # of a launch, and launches before one is read

    def __init__(self, network: Qwen3, *, texts: int, room: int):
        self.fused, self.room = fused(network), room
        self.talker, self.config = network.talker, network.config
        self.host = Host(self.talker.model.norm)
        self.plan, self.at = Qwen3BatchRows(texts), RowPositions(room)
        self.cache: list[RowCache] = []
        dtype, config = self.talker.model.codec_embedding.weight.dtype, self.config
        self.hidden = mx.zeros((texts, config.talker.hidden_size), dtype)
        self.frames = mx.zeros((texts, config.n_codebooks), mx.int32)
        self.seen = mx.zeros((texts, config.vocab_size), mx.bool_)
        self.nothing = mx.zeros(config.talker.hidden_size, dtype)
        self.trailing: dict[int, mx.array] = {}  # by slot: (M + 1, D), the padding's last
        self.drawings: dict[tuple[Qwen3Choice | None, ...], OtherCodes] = {}

    @property
    def can_step(self) -> bool:
        """True if a text takes part in the next step."""
        return self.plan.can_step

    def join(self, slot: int, text: Qwen3Joining) -> None:
        """Read what comes before a text's speech; it draws with the next step. Its slot must be free."""
        self._reserve(text.positions)
        talker, cache = self.talker, self.talker.new_cache()
        self.hidden[slot] = talker(embedded(talker, self.host, text), 0, cache)[0, -1]
        for layer, held in zip(self.cache, cache, strict=True):
            assert held.buffers is not None
            layer.fill(slot, *(rows[0, :, : text.positions] for rows in held.buffers))
        self.trailing[slot] = self._embed([*text.layout.trailing, self.config.tts_pad_id])
        self.seen[slot] = False
        self.plan.join(slot, text)

    def feed(self, slot: int, ids: Sequence[int], *, more: bool) -> None:
        """Append ids to a text that goes on. more: it still does; if not, padding follows them."""
        self.plan.feed(slot, ids, more=more)
        if ids:
            before = self.trailing[slot]
            self.trailing[slot] = mx.concatenate([before[:-1], self._embed(ids), before[-1:]])

    def leave(self, slot: int) -> None:
        """Free a slot; with the last one the memory of keys and values."""
        self.plan.leave(slot)
        del self.trailing[slot]
        if not self.plan.texts:
            self.cache = []

    def launch(self, steps: int) -> Launched:
        """Draw a frame of all texts that do not wait; waits for nothing. There must be one. steps: 1.

        Returns a read of (1, texts, Q) codes: the first one is -1 where logits were not all finite, and the
        end of speech where there is no frame.
        """
        waiting = self.plan.waiting
        return Launched(begin_read(self._step()[None]), waiting)

    def read(self, launched: Launched) -> np.ndarray:
        """Wait for a launch. → (1, texts, Q) codes; the first is WAITED of a text that waited."""
        return launched.codes(finish_read(launched.reading))

    def _step(self) -> mx.array:
        """Draw the next frame of every text that does not wait. → (texts, Q)."""
        self._advance()
        plan, config = self.plan, self.config
        count, groups = plan.count, plan.groups()
        numbers = config.vocab_size + (config.n_codebooks - 1) * config.codebook_size
        uniform = self.host.to_device(plan.uniform(numbers))
        logits = self.fused.logits(self.hidden[:count])
        first = self._first_codes(logits, uniform[:, : config.vocab_size], groups)
        others = self._others(groups)
        codes, finite = others.draw(self.hidden[:count], first, uniform[:, config.vocab_size :])
        if plan.waiting:
            rows = self.host.to_device(np.concatenate([group.rows for group in groups]))
            self.seen[rows, first[rows]] = True
            self.frames[rows] = codes[rows]
        else:
            self.seen[mx.arange(count), first] = True
            self.frames[:count] = codes
        finite = finite & mx.isfinite(logits).all(axis=-1)
        plan.advance()
        drawn = mx.array(self.frames)
        drawn[:count, 0] = mx.where(finite, first, -1)
        return drawn

    def _embed(self, ids: Sequence[int]) -> mx.array:
        """Embed ids of a text. → (M, D)."""
        return self.talker.embed_text(self.host.to_device(np.array(ids)))

    def _advance(self) -> None:
        """Read the frames that were drawn last, each with the text that belongs to it."""
        begun = self.plan.begun()
        if not begun.any():
            return
        count, positions = len(begun), self.plan.positions()
        places = dict(self.plan.trailing())
        texts = [
            self.trailing[slot][places[slot]] if slot in places else self.nothing for slot in range(count)
        ]
        last = int(positions.max())
        self._reserve(last + 1)
        if (positions == last).all():
            self.at.level(last)
        else:
            self.at.move(self.host.to_device(positions), last + 1)
        x = self.fused.embed(self.frames[:count], mx.stack(texts))
        hidden = self.fused.hidden(x, positions, self.cache)
        if begun.all():
            self.hidden[:count] = hidden
        else:
            self.hidden[:count] = mx.where(self.host.to_device(begun)[:, None], hidden, self.hidden[:count])

    def _others(self, groups: Sequence[Qwen3Group]) -> OtherCodes:
        """Return the compiled draws of these texts' other codes."""
        choices: list[Qwen3Choice | None] = [None] * self.plan.count
        for group in groups:
            for row in group.rows.tolist():
                choices[row] = group.sampling.others
        key = tuple(choices)
        if key not in self.drawings:
            if len(self.drawings) == FORMS_KEPT:
                self.drawings.clear()
            self.drawings[key] = OtherCodes(self.fused, key)
        return self.drawings[key]

    def _first_codes(self, logits: mx.array, uniform: mx.array, groups: Sequence[Qwen3Group]) -> mx.array:
        """Draw the first code of each frame, or the end of speech. (R, V) each → (R,)."""
        ids = mx.zeros(len(logits), mx.int32)
        for group in groups:
            rows, sampling = self.host.to_device(group.rows), group.sampling
            kept = penalize(logits[rows], self.seen[rows], sampling.repetition_penalty)
            kept = allow(kept, self.config.codec_eos_id, 0 if group.is_early else LEAST_FRAMES)
            ids[rows] = draw(candidates(kept, sampling.first), sampling.first, uniform[rows])
        return ids

    def _reserve(self, positions: int) -> None:
        """Let every layer have keys and values of this many positions of each text; those there are kept."""
        config = self.config.talker
        if not self.cache:
            empty = mx.zeros(
                (self.plan.slots, config.num_key_value_heads, 0, config.head_dim), self.hidden.dtype
            )
            self.cache = [RowCache(empty, empty, self.at) for _ in self.talker.model.layers]
        wanted = min(-(-positions // CHUNK) * CHUNK, self.room)
        missing = wanted - self.cache[0].keys.shape[2]
        if missing > 0:
            for layer in self.cache:
                layer.keys = mx.pad(layer.keys, [(0, 0), (0, 0), (0, missing), (0, 0)])
                layer.values = mx.pad(layer.values, [(0, 0), (0, 0), (0, missing), (0, 0)])


def embedded(talker: Talker, host: Host, text: Qwen3Joining) -> mx.array:
    """Embed what is read before a text's speech. → (1, T, D)."""
    speaker = None if text.speaker is None else host.to_device(text.speaker)
    frames = None if text.frames is None else host.to_device(text.frames[None])
    return talker.embed_layout(text.layout, speaker, frames)


def fault(network: Qwen3, text: Qwen3Joining, frames: np.ndarray) -> GenerationError:
    """Build the error that names the first layer with NaN or infinity, by running a text again.

    frames: drawn before the logits that are not finite, (Q, T).
    """
    talker, host = network.talker, Host(network.talker.model.codec_embedding)
    with watched(network) as found:
        x, cache = embedded(talker, host, text), talker.new_cache()
        hidden = talker(x, 0, cache)
        if frames.shape[1]:
            read = talker.embed_text(
                host.to_device(text.read_with(frames.shape[1], network.config.tts_pad_id))
            )
            spoken = talker.embed_frames(host.to_device(frames[None]))
            hidden = talker(spoken + read[None], x.shape[1], cache)
        talker.logits(hidden[:, -1])
    row = text.positions + frames.shape[1]
    return NotFiniteError(next(iter(found), None), host.dtype, text=1, row=row)

"""Calls of streams that Mimi and Qwen3-TTS's codec decode on CUDA, as graphs.

A call of a few frames takes the host about 5 ms to launch, and an H200 less to run. A state has one shape
from the start of a stream on, so that calls of as many rows and frames come again; it is one tensor a stream,
which a kernel copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ref.codecs.mimi import Mimi
from torch_ref.codecs.mimi_transformer import Attention
from torch_ref.codecs.qwen3_codec import Qwen3Codec
from torch_ref.cuda.replayed import ReplayedTensors
from torch_ref.layers.carried import Carried, Places, States, StreamState
from torch_ref.limits.precision import computing
from tts_core.codecs.mimi import STEPS
from tts_core.codecs.policy import shared_shapes


class _Whole(Carried):
    """State of all rows in one array an operation."""

    def after(self, steps: int) -> list[StreamState]:
        return [StreamState(0, tuple(self._whole))]

    @cached_property
    def _whole(self) -> list[Tensor]:
        return []

    @property
    def next(self) -> Tensor | None:
        [state] = self.states
        assert state is not None
        return state.arrays[len(self._whole)]

    def _leave(self, x: Tensor) -> None:
        self._whole.append(x)


class ReplayedPieces:
    """Decodes as the codec's `decode_piece` does; elsewhere than on CUDA that itself."""

    def __init__(self, codec: Mimi | Qwen3Codec):
        self.codec = codec
        if isinstance(codec, Mimi):
            transformer, self.steps = codec.decoder_transformer, STEPS
        else:
            transformer, self.steps = codec.decoder.pre_transformer, 1
        self.attention = cast(Attention, transformer.layers[0].self_attn)
        shapes = {*shared_shapes()}
        self._replayed = ReplayedTensors(
            self.run, lambda: codec.precision, lambda shape: (shape[0], shape[2]) in shapes
        )

    def __call__(self, codes: Tensor, states: States | None) -> tuple[Tensor, list[StreamState]]:
        """Decode the next frames of streams. (B, Q, T) → (B, hop T) and the states for the next call.

        states: after the calls before, a row each; None at the start.
        """
        if not codes.is_cuda:
            return self.codec.decode_piece(codes, states)
        known = [state or StreamState(0, (self.empty,)) for state in states or (None,) * len(codes)]
        starts = [state.steps for state in known]
        flat = torch.cat([state.arrays[0] for state in known])
        samples, flat = self._replayed(codes, *self.places(codes, starts), flat)
        rows = [torch.empty_like(row) for row in flat.split(1)]  # one stream may keep its row for long
        torch._foreach_copy_(rows, [*flat.split(1)])  # pyright: ignore[reportPrivateImportUsage]
        count = self.steps * codes.shape[2]
        return samples, [StreamState(start + count, (row,)) for start, row in zip(starts, rows, strict=True)]

    def places(self, codes: Tensor, starts: Sequence[int]) -> Places:
        """Find the frames of codes, (B, Q, T), in streams of so many steps so far that have all keys.

        → (B, 1, T, ...) each.
        """
        keys = torch.empty(1, 0, self.attention.window - 1)
        steps = codes.new_empty(len(codes), self.steps * codes.shape[2])
        carried = Carried([StreamState(start, (keys,)) for start in starts])
        found = self.attention.places(steps, carried)
        return Places(*(each.expand(len(codes), 1, *each.shape[-2:]) for each in found))

    def run(self, codes: Tensor, cos: Tensor, sin: Tensor, mask: Tensor, flat: Tensor) -> Sequence[Tensor]:
        """Decode frames at the places of three tensors. → (B, hop T), and the next states, in place of the
        ones before.

        flat: the states, (B, N).
        """
        parts = flat.split([shape.numel() for shape in self._shapes], dim=1)
        arrays = tuple(part.unflatten(1, shape) for part, shape in zip(parts, self._shapes, strict=True))
        carried = _Whole([StreamState(0, arrays)], Places(cos, sin, mask))
        with computing(self.codec.precision, flat.device):
            samples = self._decoded(codes, carried)
        [after] = carried.after(0)
        torch.cat([array.flatten(1) for array in after.arrays], dim=1, out=flat)
        return samples, flat

    def _decoded(self, codes: Tensor, carried: Carried) -> Tensor:
        codec = self.codec
        if isinstance(codec, Qwen3Codec):
            return codec.decoder(codes, carried)
        steps = codec.upsample(codec.quantizer.decode(codes), carried)
        return codec.decoder(codec.decoder_transformer(steps, carried), carried)[:, 0]

    @property
    def empty(self) -> Tensor:
        """State before the first call: zeros, also for all keys of the window. (1, N)."""
        weight, count = self.attention.q_proj.weight, sum(shape.numel() for shape in self._shapes)
        return weight.new_zeros(1, count)

    @cached_property
    def _shapes(self) -> list[torch.Size]:
        """Shapes of the arrays of a stream with all keys of its window."""
        codes = torch.zeros(1, self.codec.n_codebooks, 1, dtype=torch.int32)
        _, [after] = self.codec.decode_piece(codes, None)
        keys = self.attention.window - 1
        arrays = (F.pad(x, (0, 0, 0, keys - x.shape[2])) if x.dim() == 4 else x for x in after.arrays)
        return [array.shape[1:] for array in arrays]

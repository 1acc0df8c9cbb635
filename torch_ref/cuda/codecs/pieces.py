"""Pieces of streams that Mimi and Qwen3-TTS's codec decode on CUDA, as graphs.

A piece of a few frames takes the host about 5 ms to launch, and an H200 less to run. A state has one shape
from the start of a stream on, so that pieces of the same length come again; it is one tensor, which a kernel
copies.
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
from tts_core.codecs.mimi import STEPS
from tts_core.codecs.policy import CAPTURED


class ReplayedPieces:
    """Decodes as the codec's `decode_piece` does; elsewhere than on CUDA that itself."""

    def __init__(self, codec: Mimi | Qwen3Codec):
        self.codec = codec
        if isinstance(codec, Mimi):
            transformer, self.steps = codec.decoder_transformer, STEPS
        else:
            transformer, self.steps = codec.decoder.pre_transformer, 1
        self.attention = cast(Attention, transformer.layers[0].self_attn)
        self._replayed = ReplayedTensors(
            self.run, lambda: codec.precision, lambda shape: shape[0] == 1 and shape[2] <= CAPTURED
        )

    def __call__(self, codes: Tensor, states: States | None) -> tuple[Tensor, list[StreamState]]:
        """Decode the next frames of a stream. (B, Q, T) → (B, hop T) and the state for the next piece.

        states: after the pieces before, of one row; None at the start.
        """
        if not codes.is_cuda:
            return self.codec.decode_piece(codes, states)
        state = states[0] if states else None
        start, [flat] = state or StreamState(0, (self.empty,))
        samples, flat = self._replayed(codes, *self.places(codes, start), flat)
        return samples, [StreamState(start + self.steps * codes.shape[2], (flat,))]

    def places(self, codes: Tensor, start: int) -> Places:
        """Find the frames of codes, (B, Q, T), in a stream of `start` steps so far that has all keys."""
        keys = torch.empty(1, 0, self.attention.window - 1)
        steps = codes.new_empty(1, self.steps * codes.shape[2])
        return self.attention.places(steps, Carried([StreamState(start, (keys,))]))

    def run(self, codes: Tensor, cos: Tensor, sin: Tensor, mask: Tensor, flat: Tensor) -> Sequence[Tensor]:
        """Decode a piece at the places of three tensors. → (B, hop T), and the next state.

        flat: the state, (B, N).
        """
        parts = flat.split([shape.numel() for shape in self._shapes], dim=1)
        arrays = tuple(part.unflatten(1, shape) for part, shape in zip(parts, self._shapes, strict=True))
        state, places = StreamState(0, arrays), Places(cos, sin, mask)
        samples, [after] = self.codec.decode_piece(codes, [state], places)
        return samples, torch.cat([array.flatten(1) for array in after.arrays], dim=1)

    @property
    def empty(self) -> Tensor:
        """State before the first piece: zeros, also for all keys of the window. (1, N)."""
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

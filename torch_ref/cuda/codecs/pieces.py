"""Calls of streams that Mimi and Qwen3-TTS's codec decode on CUDA, as graphs of kernels.

A call of a few frames takes the host about 5 ms to launch, and an H200 less to run. A state is one tensor a
stream, of one shape from its start on, so that calls of as many rows and frames come again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from torch_ref.codecs.mimi import Mimi
from torch_ref.codecs.mimi_transformer import Attention
from torch_ref.codecs.qwen3_codec import Qwen3Codec
from torch_ref.cuda.codecs.decoder import FusedPieces
from torch_ref.cuda.replayed import ReplayedTensors
from torch_ref.layers.carried import Carried, Places, States, StreamState
from tts_core.codecs.mimi import STEPS
from tts_core.codecs.policy import shared_shapes


class ReplayedPieces:
    """Decodes as the codec's `decode_piece` does; where the kernels do not run, that itself."""

    def __init__(self, codec: Mimi | Qwen3Codec):
        self.codec, self.fused = codec, FusedPieces(codec)
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
        if not self.fused.runs:
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
        samples, after = self.fused(codes, cos, sin, mask, flat)
        return samples, flat.copy_(after)

    @property
    def empty(self) -> Tensor:
        """State before the first call: zeros, also for all keys of the window. (1, N)."""
        return torch.zeros(1, self.fused.width, device=self.attention.q_proj.weight.device)

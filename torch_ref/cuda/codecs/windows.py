"""Calls of streams that Mimi, Qwen3-TTS's codec and DAC decode on CUDA, as graphs of kernels.

A call of a few frames takes the host about 5 ms to launch, and an H200 less to run. A state is one tensor a
stream, of one shape from its start on, so that calls of as many rows and frames come again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from torch_ref.codecs.dac import Dac
from torch_ref.codecs.mimi import Mimi
from torch_ref.codecs.mimi_transformer import Attention
from torch_ref.codecs.qwen3_codec import Qwen3Codec
from torch_ref.cuda.codecs.decoder import FusedPieces
from torch_ref.cuda.codecs.delayed import FusedDelayed
from torch_ref.cuda.replayed import ReplayedTensors
from torch_ref.device import to_device
from torch_ref.layers.carried import Carried, States, StreamPositions, StreamState
from torch_ref.layers.delayed import NEVER
from torch_ref.limits.precision import Codec
from tts_core.codecs.mimi import STEPS
from tts_core.codecs.policy import CALL, shared_shapes


class _Replayed:
    """Calls of streams as graphs of kernels.

    fused: from codes (B, Q, T), tensors of places and the states, (B, N), to samples and the next states.
    steps: of a state for each frame.
    is_small: True for a shape of codes that may be captured.
    """

    steps = 1

    def __init__(
        self, codec: Codec, fused: FusedPieces | FusedDelayed, is_small: Callable[[torch.Size], bool]
    ):
        self.fused: Any = fused
        self._replayed = ReplayedTensors(self.run, lambda: codec.precision, is_small)
        self._weight = next(codec.parameters())

    def call(
        self, codes: Tensor, states: States | None, positions: Callable[[Sequence[int]], Sequence[Tensor]]
    ) -> tuple[Tensor, list[StreamState]]:
        """Decode the next frames of streams. positions: from the steps of each so far."""
        known = [state or StreamState(0, (self.empty,)) for state in states or (None,) * len(codes)]
        starts = [state.steps for state in known]
        flat = torch.cat([state.arrays[0] for state in known])
        samples, flat = self._replayed(codes, *positions(starts), flat)
        rows = [torch.empty_like(row) for row in flat.split(1)]  # one stream may keep its row for long
        torch._foreach_copy_(rows, [*flat.split(1)])  # pyright: ignore[reportPrivateImportUsage]
        count = self.steps * codes.shape[2]
        return samples, [StreamState(start + count, (row,)) for start, row in zip(starts, rows, strict=True)]

    def run(self, codes: Tensor, *given: Tensor) -> Sequence[Tensor]:
        """Decode frames. → (B, hop T), and the next states, in place of the ones before.

        given: places, and last the states, (B, N).
        """
        samples, after = self.fused(codes, *given)
        return samples, given[-1].copy_(after)

    @property
    def empty(self) -> Tensor:
        """State before the first call: zeros, also for all keys of a window. (1, N)."""
        return torch.zeros(1, self.fused.width, device=self._weight.device)


class ReplayedWindows(_Replayed):
    """Decodes as the codec's `decode_window` does; where the kernels do not run, that itself."""

    def __init__(self, codec: Mimi | Qwen3Codec):
        self.codec = codec
        if isinstance(codec, Mimi):
            transformer, self.steps = codec.decoder_transformer, STEPS
        else:
            transformer = codec.decoder.pre_transformer
        self.attention = cast(Attention, transformer.layers[0].self_attn)
        shapes = {*shared_shapes()}
        super().__init__(codec, FusedPieces(codec), lambda shape: (shape[0], shape[2]) in shapes)

    def __call__(self, codes: Tensor, states: States | None) -> tuple[Tensor, list[StreamState]]:
        """Decode the next frames of streams. (B, Q, T) → (B, hop T) and the states for the next call.

        states: after the calls before, a row each; None at the start.
        """
        if not self.fused.runs:
            return self.codec.decode_window(codes, states)
        return self.call(codes, states, lambda starts: self.positions(codes, starts))

    def positions(self, codes: Tensor, starts: Sequence[int]) -> StreamPositions:
        """Find the frames of codes, (B, Q, T), in streams of so many steps so far that have all keys.

        → (B, 1, T, ...) each.
        """
        keys = torch.empty(1, 0, self.attention.window - 1)
        steps = codes.new_empty(len(codes), self.steps * codes.shape[2])
        carried = Carried([StreamState(start, (keys,)) for start in starts])
        found = self.attention.positions(steps, carried)
        return StreamPositions(*(item.expand(len(codes), 1, *item.shape[-2:]) for item in found))


class ReplayedDelayed(_Replayed):
    """The same of DAC's streams, whose samples come late; its calls of at most CALL frames are captured."""

    def __init__(self, codec: Dac):
        self.codec = codec
        super().__init__(codec, FusedDelayed(codec), lambda shape: shape[0] * shape[2] <= CALL)

    def __call__(
        self, codes: Tensor, states: States | None, ends: Sequence[int | None] | None = None
    ) -> tuple[Tensor, list[StreamState]]:
        """Decode the next frames of streams. (B, Q, T) → (B, hop T) and the states for the next call.

        states: after the calls before, a row each; None at the start.
        ends: frames of each stream; None while they are not known.
        """
        if not self.fused.runs:
            return self.codec.decode_window(codes, states, ends)
        known = [NEVER if end is None else end for end in ends or (None,) * len(codes)]
        return self.call(codes, states, lambda starts: self._on_device(starts, known))

    def _on_device(self, *counts: Sequence[int]) -> list[Tensor]:
        return [to_device(np.array(count, np.int64), self._weight.device) for count in counts]

"""State of streams whose convolutions look ahead: each runs when its inputs are there, so outputs are late.

A signal of `rate` steps a frame is `late` steps late, and at the end of a stream it is `short` steps short.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from mlx_port.layers.carried import Carried, States
from mlx_port.layers.conv import Conv1d, ConvTranspose1d, conv1d, conv_transpose1d

NEVER = 2**31 - 1  # as an end: no step comes after it


class Delayed(Carried):
    """State of the streams of a call; a step of the transformer is a frame here.

    ends: frames of each stream; None while they are not known.
    """

    def __init__(self, states: States | None = None, ends: Sequence[int | None] | None = None):
        super().__init__(states)
        self.ends = ends or (None,)
        self.rate, self.late, self.short = 1, 0, 0

    def convolved(self, x: mx.array, conv: Conv1d) -> mx.array:
        """Run a convolution with symmetric padding. (B, T, C) → (B, T, C'), later by the padding."""
        self.late += conv.padding
        known = self.extended(x, 2 * conv.padding)
        return conv1d(known, conv.weight, conv.bias, dilation=conv.dilation)

    def delayed(self, x: mx.array, conv: Conv1d) -> mx.array:
        """Let a signal be as late as after a convolution. (B, T, C) → same."""
        return self.extended(x, conv.padding)[:, : x.shape[1]]

    def raised(self, x: mx.array, conv: ConvTranspose1d) -> mx.array:
        """Run a transposed convolution. (B, T, C) → (B, s·T, C'), later by the outputs that are cut."""
        stride, padding = conv.stride, conv.padding
        self.rate, self.late = self.rate * stride, self.late * stride + padding
        self.short = self.short * stride + 2 * padding - stride
        y = self.added(conv_transpose1d(x, conv.weight, None, stride), conv.weight.shape[1] - stride)
        return y + conv.bias

    def inside(self, x: mx.array) -> mx.array:
        """Let steps before the start and after the end be zero, as padding is. (B, T, C) → same."""
        firsts = [start * self.rate - self.late for start in self.starts]
        lasts = [NEVER if end is None else end * self.rate - self.short for end in self.ends]
        if min(firsts) >= 0 and min(lasts) == NEVER:
            return x
        step = mx.array(firsts)[:, None] + mx.arange(x.shape[1])
        inside_call = (step >= 0) & (step < mx.array(lasts)[:, None])
        return mx.where(inside_call[..., None], x, 0.0)

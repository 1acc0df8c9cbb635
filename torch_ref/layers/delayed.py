"""State of streams whose convolutions look ahead: each runs when its inputs are there, so outputs are late.

A signal of `rate` steps a frame is `late` steps late, and at the end of a stream it is `short` steps short.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torch_ref.layers.carried import Carried, States
from torch_ref.layers.conv import Conv1d, ConvTranspose1d, conv1d, conv_transpose1d

NEVER = 2**31 - 1  # as an end: no step comes after it


class Delayed(Carried):
    """State of the streams of a call; a step of the transformer is a frame here.

    ends: frames of each stream; None while they are not known.
    """

    def __init__(self, states: States | None = None, ends: Sequence[int | None] | None = None):
        super().__init__(states)
        self.ends = ends or (None,)
        self.rate, self.late, self.short = 1, 0, 0

    def convolved(self, x: Tensor, conv: Conv1d) -> Tensor:
        """Run a convolution with symmetric padding. (B, C, T) → (B, C', T), later by the padding."""
        padding, dilation = int(conv.padding[0]), conv.dilation[0]
        self.late += padding
        return conv1d(self.extended(x, 2 * padding), conv.weight, conv.bias, dilation=dilation)

    def delayed(self, x: Tensor, conv: Conv1d) -> Tensor:
        """Let a signal be as late as after a convolution. (B, C, T) → same."""
        return self.extended(x, int(conv.padding[0]))[:, :, : x.shape[2]]

    def raised(self, x: Tensor, conv: ConvTranspose1d) -> Tensor:
        """Run a transposed convolution. (B, C, T) → (B, C', s·T), later by the outputs that are cut."""
        stride, padding = conv.stride[0], int(conv.padding[0])
        self.rate, self.late = self.rate * stride, self.late * stride + padding
        self.short = self.short * stride + 2 * padding - stride
        y = self.added(conv_transpose1d(x, conv.weight, None, stride), conv.kernel_size[0] - stride)
        return y if conv.bias is None else y + conv.bias[:, None].to(y.dtype)

    def inside(self, x: Tensor) -> Tensor:
        """Let steps before the start and after the end be zero, as padding is. (B, C, T) → same."""
        firsts = [start * self.rate - self.late for start in self.starts]
        lasts = [NEVER if end is None else end * self.rate - self.short for end in self.ends]
        if min(firsts) >= 0 and min(lasts) == NEVER:
            return x
        step = torch.tensor(firsts, device=x.device)[:, None] + torch.arange(x.shape[2], device=x.device)
        inside_call = (step >= 0) & (step < torch.tensor(lasts, device=x.device)[:, None])
        return torch.where(inside_call[:, None], x, 0.0)

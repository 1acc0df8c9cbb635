"""The end of a draw in a kernel that only notes ids."""

# pyright: reportInvalidTypeForm=false
# (Triton reads the kernel's annotations)

from typing import NamedTuple

from torch import Tensor

from torch_ref.cuda.triton import jit, tl


class Noted(NamedTuple):
    """ids: (B, channels) int32."""

    ids: Tensor
    channels: int


@jit
def noted(state, text, channel, id, finite, GROUPS: tl.constexpr, WIDE: tl.constexpr):
    tl.store(state.ids + text * state.channels + channel, tl.where(finite, id, -1))

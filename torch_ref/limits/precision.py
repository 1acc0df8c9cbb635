"""The rounding of codecs' float32 convolutions on CUDA."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Concatenate, Literal, ParamSpec, TypeVar, get_args

import torch
from torch import nn

from tts_core.errors import UsageError

Given = ParamSpec("Given")
Made = TypeVar("Made")
Precision = Literal["float32", "tf32", "bfloat16"]
# of activations between kernels; cuDNN's kernels for tensor cores read channels last
LAYOUTS = {
    "float32": (torch.float32, torch.contiguous_format),
    "tf32": (torch.float32, torch.channels_last),
    "bfloat16": (torch.bfloat16, torch.channels_last),
}


class Codec(nn.Module):
    """A codec. precision: of the convolutions of its decoder on CUDA; it may be replaced at any time."""

    precision: Precision = "float32"


Owner = TypeVar("Owner", bound=Codec)


def choose_precision(
    wanted: str | None, device: torch.device, dtype: torch.dtype = torch.float32
) -> Precision:
    """Return the requested precision of codecs; None is TF32 beside networks in half precision on CUDA.

    dtype: of the networks.
    Raises UsageError for an unknown name, and for another one than float32 outside CUDA.
    """
    if wanted is None:
        is_half = dtype in (torch.bfloat16, torch.float16)
        return "tf32" if is_half and device.type == "cuda" else "float32"
    for name in get_args(Precision):
        if wanted == name:
            if name != "float32" and device.type != "cuda":
                raise UsageError(
                    f"codec_precision: {name} is for CUDA; {device.type} decodes in float32, omit it"
                )
            return name
    raise UsageError(f"codec_precision: {wanted!r} is not one of {', '.join(get_args(Precision))}")


def arithmetic(device: torch.device) -> Literal["float32", "tf32"]:
    """Name the arithmetic of float32 products; convolutions of codecs have a `Precision` of their own."""
    is_rounded = device.type == "cuda" and torch.backends.cuda.matmul.allow_tf32
    return "tf32" if is_rounded else "float32"


def exactly(method: Callable[Given, Made]) -> Callable[Given, Made]:
    """Let a method run its convolutions and LSTMs in exact float32, whatever cuDNN may do elsewhere."""

    @wraps(method)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> Made:
        with _flags(allow_tf32=False):
            return method(*args, **kwargs)

    return run


def rounded(
    method: Callable[Concatenate[Owner, Given], Made],
) -> Callable[Concatenate[Owner, Given], Made]:
    """Let a codec's method, which decodes, run in the codec's `precision`. Codes never depend on it."""

    @wraps(method)
    def run(self: Owner, *args: Given.args, **kwargs: Given.kwargs) -> Made:
        with computing(self.precision, next(self.parameters()).device):
            return method(self, *args, **kwargs)

    return run


def _flags(*, allow_tf32: bool) -> AbstractContextManager[None]:
    cudnn = torch.backends.cudnn
    return cudnn.flags(
        enabled=cudnn.enabled,
        benchmark=cudnn.benchmark,
        deterministic=cudnn.deterministic,
        allow_tf32=allow_tf32,
    )


@contextmanager
def computing(precision: Precision, device: torch.device) -> Iterator[None]:
    """Run convolutions in float32, with TF32's 10 bits, or in bfloat16 where torch.autocast does.

    Without effect outside CUDA. cuDNN uses TF32 by default, which gives DAC an SNR of 55 dB against float64;
    float32 has 104 dB, bfloat16 31 dB.
    """
    halved = precision == "bfloat16" and device.type == "cuda"
    with _flags(allow_tf32=precision == "tf32"), torch.autocast("cuda", torch.bfloat16, enabled=halved):
        yield

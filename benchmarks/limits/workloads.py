"""Workloads as usually written and through our layers, for docs/measured/limits.md.

Large inputs are meta tensors, which have shapes only; inputs have values if a rule reads them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ref.layers.attention import AttentionPolicy, scaled_dot_product_attention
from torch_ref.layers.conv import conv1d, conv_transpose1d
from torch_ref.layers.lstm import LSTM
from torch_ref.limits.backend import Backend, minimum_macos, parse
from torch_ref.limits.enforce import observe

RELEASES = ("2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")
SYSTEMS = ("14.5", "15.0", "15.2", "26.4", "27.0")


@dataclass(frozen=True)
class Workload:
    """A workload as usually written, and through our layers."""

    about: str
    usual: Callable[[], object]
    ours: Callable[[], object]


def pairs() -> list[Backend]:
    """List every MPS backend in the tables: pairs of a release and a macOS that it supports, chip unknown."""
    return [
        Backend("mps", release, macos)
        for release in RELEASES
        for macos in SYSTEMS
        if parse(macos) >= parse(minimum_macos(release))
    ]


def broken(work: Callable[[], object], backend: Backend) -> list[str]:
    """Run a workload and list the rules that it breaks, in order."""
    with observe(backend) as watch, torch.no_grad():
        work()
    return list(watch.broken)


def _meta(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=torch.device("meta"))


def _strided(*shape: int) -> Tensor:
    """(B, H, T, E) as a projection outputs it: (B, T, H, E) transposed."""
    batch, heads, steps, width = shape
    return _meta(batch, steps, heads, width).transpose(1, 2)


def _decoding(attend: Callable[..., Tensor]) -> None:
    """Attend like Dia's decoder: one row, 16 heads on 4, a growing cache, a key mask, no scaling."""
    for keys in (75, 1500):
        query, key = _strided(2, 16, 1, 128), _meta(2, 4, keys, 128)
        attend(query, key, key, enable_gqa=True, scale=1.0)
        attend(query, key, key, _meta(2, 1, 1, keys, dtype=torch.bool), enable_gqa=True, scale=1.0)
    row, key = _meta(2, 4, 1, 128), _meta(2, 4, 1536, 128)
    attend(row, key, key, scale=1.0)
    attend(row, key, key)  # another model's scale
    step = _strided(2, 4, 4, 64)
    attend(step, step, step)


def _prefill(attend: Callable[..., Tensor]) -> None:
    """Attend like prompts: causal, grouped, in float32 and float16."""
    for dtype in (torch.float32, torch.float16):
        query, key = _meta(2, 16, 300, 128, dtype=dtype), _meta(2, 4, 300, 128, dtype=dtype)
        attend(query, key, key, is_causal=True, enable_gqa=True, scale=1.0)


def _masks(attend: Callable[..., Tensor]) -> None:
    """Attend like a UNet after a ControlNet: padding, regions, booleans, a mask per batch."""
    query, key = _meta(2, 8, 4096, 40), _meta(2, 8, 77, 40)
    attend(query, key, key, _meta(2, 8, 1, 77))
    attend(query, key, key, _meta(2, 8, 4096, 77))
    attend(query, key, key, _meta(2, 8, 4096, 77, dtype=torch.bool))
    short, few = _meta(2, 8, 4, 64), _meta(2, 8, 64, 64)
    attend(short, few, few, _meta(2, 1, 4, 64))


def _shapes(attend: Callable[..., Tensor]) -> None:
    """Attend with values of another width, and one batch for many."""
    x = _meta(2, 4, 16, 64)
    attend(x, x, _meta(2, 4, 16, 32))
    attend(x[:1], x, x)


def _long(attend: Callable[..., Tensor]) -> None:
    """Attend over 29,640 tokens, 12 heads of width 40, and over 14,000 tokens in float16."""
    x = _meta(1, 12, 29640, 40)
    attend(x, x, x)
    x = _meta(1, 2, 14000, 40, dtype=torch.float16)
    attend(x, x, x)


def _convolutions(conv: Callable[..., Tensor], transposed: Callable[..., Tensor]) -> None:
    """Run DAC's last layers for 2 s, many output channels, half a batch's channels, and half a weight."""
    conv(_meta(1, 96, 88200), _meta(1, 96, 7), padding=3)
    transposed(_meta(1, 192, 66000), _meta(192, 96, 4), stride=2, padding=1)
    conv(_meta(1, 4, 100), _meta(70000, 4, 1))
    conv(_meta(2, 16, 50).chunk(2, dim=1)[1], _meta(16, 8, 7), padding=3)
    conv(_meta(1, 50, 16).transpose(1, 2)[:, :8], _meta(16, 8, 7), padding=3)
    conv(_meta(1, 8, 50), _meta(16, 16, 7)[:, :8], padding=3)


def _recurrent(kind: type[nn.LSTM]) -> None:
    """Run EnCodec's two layers over a few frames."""
    kind(8, 8, 2)(torch.ones(1, 5, 8, device=torch.device("cpu")))


def _device_draw() -> None:
    """Compute angles in float64, nucleus sampling and a draw on the device."""
    device = torch.device("cpu")
    torch.arange(64, dtype=torch.float64, device=device).cos()
    probs = torch.ones(9, 1028, device=device).softmax(-1)
    probs.argmax(-1)
    torch.multinomial(probs, 1)


def _host_draw() -> None:
    device = torch.device("cpu")
    torch.arange(64, dtype=torch.float64).cos().float().to(device)
    probs = torch.ones(9, 1028, device=device).softmax(-1).cpu()
    probs.argmax(-1)
    torch.multinomial(probs, 1)


def _attention(about: str, calls: Callable[[Callable[..., Tensor]], None]) -> Workload:
    large = AttentionPolicy(budget_bytes=2**36)  # fewer blocks to go through
    ours = functools.partial(scaled_dot_product_attention, policy=large)
    return Workload(about, lambda: calls(F.scaled_dot_product_attention), lambda: calls(ours))


def _padded(function: Callable[..., Any]) -> Callable[..., Tensor]:
    return lambda x, weight, stride=1, padding=0: function(x, weight, None, stride, padding)


WORKLOADS = (
    _attention("Attention: decoding with grouped heads", _decoding),
    _attention("Attention: causal prompts", _prefill),
    _attention("Attention: masks", _masks),
    _attention("Attention: other shapes", _shapes),
    _attention("Attention: long sequences", _long),
    Workload(
        "Convolutions of a codec",
        lambda: _convolutions(_padded(F.conv1d), _padded(F.conv_transpose1d)),
        lambda: _convolutions(_padded(conv1d), _padded(conv_transpose1d)),
    ),
    Workload("LSTM of a codec", lambda: _recurrent(nn.LSTM), lambda: _recurrent(LSTM)),
    Workload("Tables and draws", _device_draw, _host_draw),
)

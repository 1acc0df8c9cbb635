"""A call that breaks it and a near miss that breaks nothing, for every rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ref.limits import Backend

Thunk = Callable[[], object]
sdpa = F.scaled_dot_product_attention


def mps(release: str, macos: str, chip: str = "M4") -> Backend:
    return Backend("mps", release, macos, chip)


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def channels_last(*shape: int) -> Tensor:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return meta(*shape).contiguous(memory_format=formats[len(shape)])


def real(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.ones(shape, dtype=dtype)


@dataclass(frozen=True)
class Probe:
    """Calls on one backend; the near miss may run on another."""

    backend: Backend
    breaks: Thunk
    passes: Thunk
    elsewhere: Backend | None = None


def same(breaks: Thunk, backend: Backend, elsewhere: Backend) -> Probe:
    """The same call on a backend without the rule."""
    return Probe(backend, breaks, breaks, elsewhere)


def convolution_backward(length: int, mask: list[bool], axes: int = 1) -> Thunk:
    grad, weight = meta(1, 2, *[length] * axes), meta(2, 2, *[1] * axes)
    geometry = ([1] * axes, [0] * axes, [1] * axes, False, [0] * axes, 1)
    return partial(torch.ops.aten.convolution_backward, grad, grad, weight, None, *geometry, mask)


def twice(first: Tensor | None, second: Tensor | None, **second_options: Any) -> Thunk:
    """Two attention calls of the same shapes."""
    x = meta(1, 4, 16, 64)
    return lambda: (sdpa(x, x, x, first), sdpa(x, x, x, second, **second_options))


def attention(
    rows: int, keys: int, *, width: int = 64, heads: int = 4, dtype: Any = torch.float32, **options: Any
) -> Thunk:
    query, key = meta(2, heads, rows, width, dtype=dtype), meta(2, heads, keys, width, dtype=dtype)
    return partial(sdpa, query, key, key, **options)


def lstm(**options: Any) -> Thunk:
    layer, x = nn.LSTM(3, 4, **options), real(2, 1, 3)
    return lambda: layer(x)


def gradient(x: Tensor) -> Thunk:
    weight = real(4).requires_grad_()
    return lambda: F.layer_norm(x, (4,), weight, weight).sum().backward()


def on_host(function: Callable[..., object], x: Tensor, *rest: Any) -> Thunk:
    return lambda: function(x.cpu(), *rest)


def istft() -> Thunk:
    spectrum, window = torch.ones(1, 9, 5, dtype=torch.complex64), torch.hann_window(16)
    return partial(torch.istft, spectrum, 16, 4, window=window)


NEW, OLD = mps("2.12.0", "15.2"), mps("2.11.0", "14.5")
COMPLEX = real(4, dtype=torch.complex64)
INT64 = real(300, dtype=torch.int64)
GQA = {"enable_gqa": True}
few = meta(2, 2, 32, 64)  # key heads for grouped calls
long = meta(2, 2, 1024, 64)
one = meta(2, 4, 1, 64)
HALF = torch.float16

PROBES = {
    # convolution
    "conv-65536": Probe(
        OLD,
        partial(F.conv1d, meta(1, 2, 65537), meta(2, 2, 1)),
        partial(F.conv1d, meta(1, 2, 65536), meta(2, 2, 1)),
    ),
    "conv-transpose-65536": Probe(
        OLD,
        partial(F.conv_transpose1d, meta(1, 2, 65537), meta(2, 2, 2), stride=2),
        partial(F.conv_transpose1d, meta(1, 2, 65536), meta(2, 2, 2), stride=2),
    ),
    "conv-input-grad-65536": Probe(
        OLD,
        convolution_backward(65537, [True, False, False]),
        convolution_backward(65536, [True, False, False]),
    ),
    "conv-weight-grad-65536": Probe(
        OLD,
        convolution_backward(65537, [False, True, False]),
        convolution_backward(65536, [False, True, False]),
    ),
    "conv-transpose-output-padding": Probe(
        NEW,
        partial(F.conv_transpose1d, meta(1, 2, 4), meta(2, 2, 3), stride=2, output_padding=2),
        partial(F.conv_transpose1d, meta(1, 2, 4), meta(2, 2, 3), stride=2, output_padding=1),
    ),
    "conv-large-kernel": Probe(
        NEW,
        partial(F.conv1d, meta(2, 8, 300), meta(16, 1, 256), groups=8),
        partial(F.conv1d, meta(2, 8, 300), meta(16, 1, 255), groups=8),
    ),
    "conv-chunk-batched": Probe(
        mps("2.15.0", "26.2", "Apple M5 Pro"),
        partial(F.conv2d, meta(2, 64, 8, 8).chunk(2, dim=1)[1], meta(32, 32, 3, 3)),
        partial(F.conv2d, meta(1, 64, 8, 8).chunk(2, dim=1)[1], meta(32, 32, 3, 3)),
    ),
    "conv-channels-last-slice": Probe(
        mps("2.11.0", "15.2"),
        partial(F.conv2d, channels_last(1, 2, 1, 2)[:, :1], meta(1, 1, 1, 1)),
        partial(F.conv2d, channels_last(1, 2, 1, 2), meta(1, 2, 1, 1)),
    ),
    "conv-weight-strided": Probe(
        NEW,
        partial(F.conv2d, meta(2, 8, 4, 4), meta(3, 8, 3, 3, 3)[:, :, 1]),
        partial(F.conv2d, meta(2, 8, 4, 4), meta(3, 8, 3, 3)),
    ),
    "conv3d-macos-26": Probe(
        mps("2.14.1", "26.2", "M2 Max"),
        partial(F.conv3d, meta(1, 4, 8, 8, 8), meta(4, 4, 3, 3, 3)),
        partial(F.conv3d, channels_last(1, 4, 8, 8, 8), meta(4, 4, 3, 3, 3)),
    ),
    "conv-transpose-3d": Probe(
        NEW,
        partial(F.conv_transpose3d, meta(1, 2, 2, 2, 2, dtype=HALF), meta(2, 2, 1, 1, 1, dtype=HALF)),
        partial(F.conv_transpose3d, meta(1, 2, 2, 2, 2), meta(2, 2, 1, 1, 1)),
    ),
    "conv1d-backward-macos-14": Probe(
        mps("2.11.0", "14.1"),
        convolution_backward(8, [True, True, False]),
        convolution_backward(8, [True, True, False], axes=2),
    ),
    "pad-over-3d": Probe(
        NEW, partial(F.pad, meta(2, 2, 2, 2), (1,) * 8), partial(F.pad, meta(2, 2, 2, 2), (1,) * 6)
    ),
    # attention
    "sdpa-mask-dtype-cached": Probe(
        NEW, twice(meta(16, 16), meta(16, 16, dtype=torch.bool)), twice(meta(16, 16), meta(16, 16))
    ),
    "sdpa-scale-cached": Probe(NEW, twice(None, None, scale=1.0), twice(None, None, scale=0.125)),
    "sdpa-strided": Probe(
        mps("2.11.0", "15.2"),
        partial(sdpa, *[meta(2, 8, 4, 64).transpose(1, 2)] * 3),
        partial(sdpa, *[meta(2, 9, 4, 64).transpose(1, 2)] * 3),
    ),
    "sdpa-mask-broadcast": Probe(
        NEW, attention(8, 32, attn_mask=meta(2, 1, 8, 32)), attention(8, 32, attn_mask=meta(2, 4, 8, 32))
    ),
    "sdpa-value-width": Probe(
        mps("2.11.0", "15.2"),
        partial(sdpa, meta(2, 4, 16, 64), meta(2, 4, 16, 64), meta(2, 4, 16, 32)),
        partial(sdpa, meta(2, 4, 16, 64), meta(2, 4, 16, 64), meta(2, 4, 16, 64)),
    ),
    "sdpa-leading-broadcast": Probe(
        NEW,
        partial(sdpa, meta(1, 4, 16, 64), meta(2, 4, 16, 64), meta(2, 4, 16, 64)),
        partial(sdpa, meta(2, 4, 16, 64), meta(2, 4, 16, 64), meta(2, 4, 16, 64)),
    ),
    "sdpa-half-causal": Probe(
        NEW, attention(16, 16, dtype=HALF, is_causal=True), attention(8, 16, dtype=HALF, is_causal=True)
    ),
    "sdpa-mask-and-causal": Probe(
        NEW, attention(16, 16, attn_mask=meta(16, 16), is_causal=True), attention(16, 16, is_causal=True)
    ),
    "sdpa-scores-4gib": Probe(NEW, attention(29640, 29640, heads=6), attention(12288, 12288, heads=3)),
    "sdpa-scores-31-bit": Probe(NEW, attention(2**14, 2**14), attention(2**14, 2**13)),
    "sdpa-half-long-rows": Probe(NEW, attention(16, 8193, dtype=HALF), attention(16, 8192, dtype=HALF)),
    "sdpa-integer": Probe(NEW, attention(16, 16, dtype=torch.int32), attention(16, 16)),
    "cuda-sdpa-mask-32-bit": Probe(
        Backend("cuda", "2.12.0", chip="8.0"),
        attention(65537, 65536, attn_mask=meta(65537, 65536, dtype=torch.bool)),
        attention(65536, 65536, attn_mask=meta(65536, 65536, dtype=torch.bool)),
    ),
    "cuda-sdpa-mask-last-stride": Probe(
        Backend("cuda", "2.11.0", chip="9.0"),
        attention(16, 12, attn_mask=meta(16, 1)),
        attention(16, 12, attn_mask=meta(1, 12)),
    ),
    # matrix products
    "bmm-result-32-bit": Probe(
        OLD,
        partial(torch.bmm, meta(2, 65536, 1), meta(2, 1, 65536)),
        partial(torch.bmm, meta(2, 65536, 1), meta(2, 1, 32768)),
    ),
    "matmul-matrix-32-bit": Probe(
        NEW,
        partial(torch.mm, meta(65537, 1), meta(1, 65536)),
        partial(torch.mm, meta(65536, 1), meta(1, 65536)),
    ),
    "bmm-tiled-strides": Probe(
        NEW,
        partial(torch.bmm, meta(2, 65536, 8), meta(2, 65536, 8).transpose(1, 2)),
        partial(torch.bmm, meta(2, 65536, 8), meta(2, 8, 65536)),
    ),
    "mm-long-sum": Probe(
        mps("2.13.0", "15.2", "Apple M1 Max"),
        partial(torch.mm, meta(16, 32767), meta(32767, 16)),
        partial(torch.mm, meta(16, 32766), meta(32766, 16)),
    ),
    "bmm-long-sum": Probe(
        mps("2.15.0", "15.2", "M2"),
        partial(torch.bmm, meta(2, 16, 32767), meta(2, 32767, 16)),
        partial(torch.bmm, meta(2, 15, 32767), meta(2, 32767, 16)),
    ),
    "linear-half-unstable": Probe(
        mps("2.12.0", "15.2", "M5"),
        partial(F.linear, meta(1, 2, 4, dtype=HALF), meta(4, 4, dtype=HALF)),
        partial(F.linear, meta(1, 2, 4, dtype=HALF), meta(4, 4, dtype=HALF), meta(4, dtype=HALF)),
    ),
    "linear-weight-view-m5": Probe(
        mps("2.14.0", "27.0", "Apple M5 Pro"),
        partial(F.linear, meta(2, 4, dtype=torch.bfloat16), meta(4, 4, dtype=torch.bfloat16).t()),
        partial(F.linear, meta(2, 4, dtype=torch.bfloat16), meta(4, 4, dtype=torch.bfloat16)),
    ),
    "linear-integer": Probe(
        NEW,
        partial(F.linear, meta(2, 4, dtype=torch.int32), meta(4, 4, dtype=torch.int32)),
        partial(F.linear, meta(2, 4), meta(4, 4)),
    ),
    # folding, Fourier transforms, complex numbers
    "irfft-odd": Probe(
        NEW,
        partial(torch.fft.irfft, meta(5, dtype=torch.complex64), 9),
        partial(torch.fft.irfft, meta(5, dtype=torch.complex64), 8),
    ),
    "fft-over-4d": Probe(
        NEW,
        partial(torch.fft.fftn, COMPLEX.reshape(4, 1, 1, 1, 1)),
        partial(torch.fft.fftn, COMPLEX.reshape(4, 1, 1, 1)),
    ),
    "complex128": Probe(NEW, partial(COMPLEX.to, torch.complex128), partial(COMPLEX.to, torch.complex64)),
    "real-times-complex": Probe(
        NEW, partial(torch.mul, real(4), COMPLEX), partial(torch.mul, COMPLEX, COMPLEX)
    ),
    "conj-imag": Probe(NEW, lambda: COMPLEX.conj().imag, lambda: COMPLEX.conj().resolve_conj().imag),
    # sampling, scans, sorting, indexing
    "multinomial-domain": Probe(
        NEW, partial(torch.multinomial, real(4), 1), on_host(torch.multinomial, real(4), 1)
    ),
    "argmax-macos-27": same(partial(torch.argmin, real(4)), mps("2.12.0", "27.0"), mps("2.13.0", "27.0")),
    "sort-int64": Probe(mps("2.11.0", "15.4"), partial(torch.sort, INT64), partial(torch.sort, INT64[:256])),
    "sort-first-axis": Probe(
        mps("2.11.0", "15.2"),
        partial(torch.sort, real(32768, 2), dim=0),
        partial(torch.sort, real(32768, 2), dim=1),
    ),
    "sort-padding": Probe(NEW, partial(torch.sort, real(4) * torch.nan), partial(torch.sort, real(4))),
    "missing-kthvalue": same(partial(torch.kthvalue, real(4), 1), mps("2.11.0", "15.2"), NEW),
    "missing-logcumsumexp": same(partial(torch.logcumsumexp, real(4), 0), mps("2.11.0", "15.2"), NEW),
    "gather-31-bit": Probe(
        mps("2.13.0", "15.2"),
        partial(F.embedding, meta(2, dtype=torch.int64), meta(2**21 + 1, 1024)),
        partial(F.embedding, meta(2, dtype=torch.int64), meta(2**21, 1024)),
    ),
    "scatter-reduce-mean": Probe(
        NEW,
        partial(real(4).scatter_reduce, 0, torch.zeros(4, dtype=torch.int64), real(4), "mean"),
        partial(real(4).scatter_reduce, 0, torch.zeros(4, dtype=torch.int64), real(4), "sum"),
    ),
    "unique-inverse": Probe(
        NEW,
        partial(torch.unique, INT64 * (2**24 + 1), return_inverse=True),
        partial(torch.unique, INT64 * 2**24, return_inverse=True),
    ),
    # dtypes, sizes, layers
    "float64": Probe(NEW, real(4).double, real(4).half),
    "float8": same(partial(real(4).to, torch.float8_e4m3fn), NEW, mps("2.15.0", "15.2")),
    "dimension-31-bit": Probe(
        NEW,
        partial(torch.neg, meta(2**31, dtype=torch.int8)),
        partial(torch.neg, meta(2**31 - 1, dtype=torch.int8)),
    ),
    "tensor-31-bit": Probe(
        mps("2.15.0", "15.2"),
        partial(torch.neg, meta(2**16, 2**15, dtype=torch.int8)),
        partial(torch.neg, meta(2**16, 2**15 - 1, dtype=torch.int8)),
    ),
    "rank-16": Probe(NEW, partial(real(1).reshape, [1] * 17), partial(real(1).reshape, [1] * 16)),
    "uint8-sum": Probe(
        NEW,
        partial(torch.sum, real(4).byte(), dtype=torch.uint8),
        partial(torch.sum, real(4).byte(), dtype=torch.int32),
    ),
    "lstm-leak": same(lstm(), NEW, OLD),
    "lstm-projections": Probe(OLD, lstm(proj_size=2), lstm()),
    "layer-norm-backward": Probe(NEW, gradient(real(2, 4)), gradient(real(2, 4).requires_grad_())),
    "missing-qr": same(partial(torch.linalg.qr, torch.eye(2)), mps("2.11.0", "15.2"), NEW),
    "missing-svd": same(partial(torch.linalg.svd, torch.eye(2)), NEW, mps("2.14.0", "15.2")),
    "missing-eigh": same(partial(torch.linalg.eigh, torch.eye(2)), NEW, mps("2.14.0", "15.2")),
    "cuda-bfloat16-emulated": same(
        real(4).bfloat16, Backend("cuda", "2.12.0", chip="7.5"), Backend("cuda", "2.12.0", chip="8.0")
    ),
}

"""Limits of Fourier transforms and complex numbers."""

from __future__ import annotations

import torch

from torch_ref.limits.rule import NO_DTYPE, Call, Rule

FFT = ("_fft_r2c", "_fft_c2r", "_fft_c2c")


def _real_times_complex(call: Call) -> bool:
    kinds = [x.dtype.is_complex for x in call.tensors() if x.dim()]
    return any(kinds) and not all(kinds)


RULES = (
    Rule(
        id="irfft-odd",
        ops=("_fft_c2r",),
        condition="an odd output length",
        breaks=lambda call: call["last_dim_size"] % 2 == 1,
        effect="silent",
        message="irfft of an odd length is reversed",
        remedy="multiply by the transform's matrix: torch_ref.layers.istft",
        source="pytorch #126649 (open)",
        evidence="thread",
    ),
    Rule(
        id="fft-over-4d",
        ops=FFT,
        condition="a transform over more than four axes",
        breaks=lambda call: len(call["dim"]) > 4,
        effect="error",
        message="MPS FFT only supports transforming up to 4 dimensions",
        remedy="transform axis by axis",
        source="text in the wheel 2.15.0",
        evidence="binary",
    ),
    Rule(
        id="complex128",
        ops=("tensor",),
        condition="a complex128 tensor",
        breaks=lambda call: call["x"].dtype == torch.complex128,
        effect="error",
        message=NO_DTYPE.format("ComplexDouble"),
        remedy="use complex64, or real and imaginary parts",
        source="text in every wheel",
        evidence="binary",
    ),
    Rule(
        id="real-times-complex",
        ops=("mul",),
        condition="a real times a complex tensor",
        breaks=_real_times_complex,
        effect="error",
        message="INTERNAL ASSERT FAILED in BinaryKernel.mm",
        remedy="torch.complex(magnitude * cos, magnitude * sin), or no complex numbers",
        source="Vocos #42 (2024; the fixed release was not seen)",
        evidence="thread",
    ),
    Rule(
        id="conj-imag",
        ops=("imag",),
        condition="the imaginary part of a lazily conjugated tensor",
        breaks=lambda call: call["self"].is_conj(),
        effect="silent",
        message="the conjugate bit is ignored: the sign is wrong",
        remedy="call .resolve_conj() first",
        source="pytorch #184379",
        evidence="thread",
    ),
)

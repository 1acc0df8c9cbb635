"""Each kernel's cases, at the edges of vectors, groups and rows, compared with the plain form in MLX."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import mlx.core as mx
import numpy as np
import pytest

from mlx_port.kernels import add_norm, noise, norm_rotate, rows
from mlx_port.kernels import rotate as turn
from mlx_port.layers.norm import RMSNorm
from mlx_port.layers.rope import rotate, rotate_pairs
from tts_core.nn.noise import HostNoise

F32, F16, BF16 = mx.float32, mx.float16, mx.bfloat16
ROUNDING = {F32: 2**-24, F16: 2**-11, BF16: 2**-8}  # half a step, relative
SUM = 2**-20  # of float32 sums, relative to the sum of sizes


@dataclass(frozen=True)
class Case:
    """A call of one kernel, by the kernel's name, and its comparison."""

    kernel: str
    about: str
    compare: Callable[[], None]


def random(*shape: int, dtype: mx.Dtype = F32, seed: int = 0) -> mx.array:
    return mx.array(np.random.default_rng(seed).normal(size=shape).astype(np.float32)).astype(dtype)


def wide(x: mx.array) -> np.ndarray:
    return np.array(x.astype(F32), np.float64)


def close(found: mx.array, plain: mx.array, size: np.ndarray | float) -> None:
    """Require a difference of one rounding to found's dtype and that of float32 sums of this size.

    plain: float32.
    """
    bound = ROUNDING[found.dtype] * np.abs(wide(plain)) + SUM * size + (2**-24 if found.dtype == F16 else 0)
    difference = np.abs(wide(found) - wide(plain))
    assert found.shape == plain.shape
    worst = np.unravel_index(np.argmax(difference - bound), bound.shape)
    assert (difference <= bound).all(), f"{difference[worst]:.3g} at {worst}, bound {bound[worst]:.3g}"


def product(dtype: mx.Dtype, count: int, columns: int, width: int) -> None:
    x, weight = random(count, width, dtype=dtype), random(columns, width, dtype=dtype, seed=1)
    assert rows.takes(weight)
    sizes = np.abs(wide(x)) @ np.abs(wide(weight)).T
    close(rows.product(x, weight), x.astype(F32) @ weight.astype(F32).T, sizes)


def quantized(dtype: mx.Dtype, count: int, columns: int, width: int, bits: int, span: int) -> None:
    x, weight = random(count, width, dtype=dtype), random(columns, width, seed=1)
    codes, *parts = mx.quantize(weight, span, bits)
    scales, biases = (part.astype(dtype) for part in parts)
    assert rows.takes_quantized(bits, span, "affine", codes)
    plain = mx.dequantize(codes, scales.astype(F32), biases.astype(F32), span, bits)
    sizes = np.abs(wide(x)) @ (np.abs(wide(plain)) + 2 * np.abs(np.repeat(wide(biases), span, 1))).T
    found = rows.quantized_product(x, codes, scales, biases, bits=bits, group_size=span)
    close(found, x.astype(F32) @ plain.T, sizes)


def four_columns(columns: int, width: int, bits: int) -> None:
    """Compare as for a weight of many columns, of which 32 threads compute four."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "WIDE", 0)
        quantized(BF16, 2, columns, width, bits, 64)


def table(count: int, half: int) -> mx.array:
    angles = random(count, half, seed=2)
    return mx.stack([mx.cos(angles), mx.sin(angles)], axis=1)


def turned(dtype: mx.Dtype, count: int, heads: int, kept: int, width: int, pairs: bool, spins: int) -> None:
    x, spin = random(count, (heads + 2 * kept) * width, dtype=dtype), table(spins, width // 2)
    queries, fresh = turn.rotate_heads(x, spin, heads, pairs=pairs)
    parts = x.reshape(count, -1, 1, width).astype(F32)
    form = rotate_pairs if pairs else rotate
    plain = form(parts[:, : heads + kept], (spin[:, 0][:, None, None], spin[:, 1][:, None, None]))
    close(queries, plain[:, :heads], 8.0)
    close(fresh[0], plain[:, heads:], 8.0)
    np.testing.assert_array_equal(wide(fresh[1]), wide(parts[:, heads + kept :]))


def turned_queries(dtype: mx.Dtype, count: int, heads: int, width: int, spins: int) -> None:
    x, spin = random(count, heads * width, dtype=dtype), table(spins, width // 2)
    parts = x.reshape(count, heads, 1, width).astype(F32)
    plain = rotate(parts, (spin[:, 0][:, None, None], spin[:, 1][:, None, None]))
    close(turn.rotate_queries(x, spin), plain, 8.0)


def split(
    dtype: mx.Dtype, spin_dtype: mx.Dtype, count: int, heads: int, kept: int, width: int, spins: int
) -> None:
    """Compare with the norm, its rounding, and the rotation."""
    x, spin = random(count, (heads + 2 * kept) * width, dtype=dtype), table(spins, width // 2)
    spin, gains = spin.astype(spin_dtype), random(heads + kept, width, seed=3)
    queries, fresh = norm_rotate.norm_rotate(x, spin, gains, heads, 1e-5)
    parts = x.reshape(count, -1, width).astype(F32)
    normed = (mx.fast.rms_norm(parts[:, : heads + kept], mx.ones(width), 1e-5) * gains)[:, :, None]
    cos, sin = (spin[:, half].astype(F32)[:, None, None] for half in (0, 1))
    plain = rotate(normed.astype(dtype).astype(F32), (cos, sin))
    size = 8.0 + ROUNDING[dtype] / SUM * np.abs(wide(normed)).max()  # a norm may be rounded the other way
    close(queries, plain[:, :heads], size)
    close(fresh[0], plain[:, heads:], size)
    np.testing.assert_array_equal(wide(fresh[1][:, :, 0]), wide(parts[:, heads + kept :]))


def drawn(texts: int, shape: tuple[int, ...]) -> None:
    generator = np.random.default_rng(texts)
    seeds = [int(seed) for seed in generator.integers(0, 2**64, texts, np.uint64)]
    seeds[0] = 2**64 - 1
    steps = [int(step) for step in generator.integers(0, 2**40, texts)]
    expected = np.stack(
        [HostNoise(seed).uniform(step, shape) for seed, step in zip(seeds, steps, strict=True)]
    )
    np.testing.assert_array_equal(np.array(noise.uniform(seeds, steps, shape)), expected)


def normed(dtype: mx.Dtype, weight: mx.Dtype, out: mx.Dtype, count: int, first: int, width: int) -> None:
    x, added = random(count, width, dtype=dtype), random(first, width, dtype=dtype, seed=1)
    rest = random(width, dtype=dtype, seed=2) if first < count else None
    norm = RMSNorm(width, 1e-5)
    norm.weight = random(width, dtype=weight, seed=3)
    total, found = add_norm.add_norm(x, added, rest, norm.weight, norm.eps, out)
    every = added if rest is None else mx.concatenate([added, mx.broadcast_to(rest, (count - first, width))])
    expected = (x.astype(F32) + every.astype(F32)).astype(dtype)
    np.testing.assert_array_equal(wide(total), wide(expected))
    plain = mx.fast.rms_norm(expected.astype(F32), norm.weight.astype(F32), norm.eps)
    close(
        found, plain, (SUM + ROUNDING[weight]) / SUM * np.abs(wide(plain))
    )  # it also rounds to the weight's dtype


CASES = [
    *(
        Case("rows", f"{dtype} {count} rows {shape}", partial(product, dtype, count, *shape))
        for dtype, counts, vector in ((F32, (1, 2, 4), 4), (BF16, (2, 3), 8), (F16, (2,), 8))
        for count in counts
        for shape in ((5, 3 * vector), (6, 32 * vector), (129, 33 * vector))
    ),
    *(
        Case(
            "quantized_rows",
            f"{dtype} {count} rows {bits} bits {shape}",
            partial(quantized, dtype, count, *shape, bits, span),
        )
        for dtype, count, bits, span in (
            (F32, 2, 4, 64),
            (BF16, 2, 4, 64),
            (BF16, 4, 8, 32),
            (F16, 3, 8, 128),
        )
        for shape in ((9, 128), (7, 5 * 128), (130, 1024))
    ),
    *(
        Case("quantized_rows", f"four columns {bits} bits {shape}", partial(four_columns, *shape, bits))
        for bits in (4, 8)
        for shape in ((9, 64), (34, 1024))
    ),
    *(
        Case(
            "turn",
            f"{dtype} {sizes} pairs {pairs} {count} rows {spins} spins",
            partial(turned, dtype, count, *sizes, pairs, spins),
        )
        for dtype, pairs, sizes in (
            (F32, False, (2, 1, 4)),
            (BF16, False, (16, 4, 64)),
            (F16, True, (3, 3, 6)),
        )
        for count, spins in ((2, 1), (5, 5))
    ),
    *(
        Case("turn", f"{dtype} queries {spins} spins", partial(turned_queries, dtype, 3, 4, 64, spins))
        for dtype in (F32, BF16)
        for spins in (1, 3)
    ),
    *(
        Case(
            "norm_turn",
            f"{dtype}, tables {spin_dtype} {sizes} {count} rows {spins} spins",
            partial(split, dtype, spin_dtype, count, *sizes, spins),
        )
        for dtype, spin_dtype, sizes in (
            (F32, F32, (2, 1, 4)),
            (BF16, BF16, (16, 8, 128)),
            (BF16, F32, (3, 1, 66)),
            (F16, F16, (6, 3, 10)),
        )
        for count, spins in ((1, 1), (2, 1), (5, 5))
    ),
    *(
        Case("uniform", f"{texts} texts of {shape}", partial(drawn, texts, shape))
        for texts, shape in ((1, (1,)), (1, (8,)), (2, (5, 7)), (3, (9, 257)))
    ),
    *(
        Case(
            "add_norm",
            f"{kinds} {count} rows {first} first {width}",
            partial(normed, *kinds, count, first, width),
        )
        for kinds, count, first in (
            ((F32, F32, F32), 2, 1),
            ((BF16, F32, BF16), 4, 2),
            ((BF16, BF16, BF16), 2, 2),
            ((F16, F32, F16), 1, 1),
        )
        for width in (9, 513, 2049)
    ),
]

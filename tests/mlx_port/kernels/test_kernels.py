"""Our kernels against their formulas, on a GPU; on a CPU the forms that take their place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import mlx.core as mx
import numpy as np
import pytest

from mlx_port.kernels import add_norm, attention_support, noise, norm_rotate, results, rows, source
from mlx_port.kernels import rotate as turn
from mlx_port.layers.norm import RMSNorm
from mlx_port.layers.rope import rotate, rotate_pairs
from mlx_port.steps.splitting import Splitting
from tts_core.nn.noise import HostNoise

gpu = pytest.mark.skipif(not source.on_gpu(), reason="no GPU for MLX")
HALF = mx.bfloat16
EVERY = (mx.float32, HALF, mx.float16)
DTYPES = pytest.mark.parametrize("dtype", EVERY, ids=str)
TRIALS: list[tuple[Any, ...]] = [
    (noise.trial,),
    *((rows.trial, dtype) for dtype in EVERY),
    *((turn.trial, dtype, pairs) for dtype in EVERY for pairs in (False, True)),
    *((add_norm.trial, *[dtype] * 2, weight, dtype) for dtype in EVERY for weight in {dtype, mx.float32}),
    (add_norm.trial, mx.float32, mx.float32, mx.float16, mx.float16),
    *((rows.quantized_trial, HALF, bits, 64, wide) for bits in (4, 8) for wide in (0, rows.WIDE)),
    *((attention_support.trial, dtype, 4, 128) for dtype in (mx.float32, HALF)),
    *((norm_rotate.trial, dtype, dtype) for dtype in (mx.float32, HALF, mx.float16)),
]


def random(shape: tuple[int, ...], dtype: mx.Dtype, seed: int = 0) -> mx.array:
    return mx.array(np.random.default_rng(seed).normal(size=shape).astype(np.float32)).astype(dtype)


def close(found: mx.array, expected: mx.array, roundings: float = 2.0) -> None:
    """Require agreement to some roundings of the dtype, of numbers of size 1 to 8."""
    eps = {mx.float32: 2e-6, mx.bfloat16: 2**-7, mx.float16: 2**-10}[found.dtype]
    wide = [np.array(x.astype(mx.float32)) for x in (found, expected)]
    np.testing.assert_allclose(*wide, rtol=roundings * eps, atol=roundings * eps)


def named(trial: tuple[Any, ...]) -> str:
    run, *variant = trial
    return "-".join([run.__module__.rpartition(".")[2], run.__name__, *map(str, variant)])


@gpu
@pytest.mark.parametrize("trial", TRIALS, ids=named)
def test_trials_pass(trial: tuple[Any, ...]) -> None:
    assert trial[0](*trial[1:])
    assert source.passes(*trial)


def test_no_kernel_runs_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "on_gpu", lambda: False)
    source.passes.cache_clear()
    assert not any(source.passes(*trial) for trial in TRIALS)
    source.passes.cache_clear()


def works(number: int) -> bool:
    return number > 0


@pytest.mark.parametrize("fault", [RuntimeError, ValueError])
def test_a_kernel_that_fails_is_not_used(
    fault: type[Exception], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler's error, a threadgroup that is too large for the pipeline, or other numbers."""

    def broken() -> bool:
        raise fault("[metal::Device] Unable to build metal library from source")

    assert not source.passes(broken)
    assert not [*cache.rglob("kernels-*")], "it may have lacked memory"
    assert not source.passes(works, 0)
    assert source.passes(works, 1)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder, and a GPU that has not tried anything."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(source, "on_gpu", lambda: True)
    for known in (source.passes, results._read):
        known.cache_clear()
    yield tmp_path
    for known in (source.passes, results._read):
        known.cache_clear()


def as_later_process() -> None:
    source.passes.cache_clear()
    results._read.cache_clear()


def test_results_are_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For later processes, by variant, MLX, chip, and the kernel's text."""
    assert (source.passes(works, 1), source.passes(works, 0)) == (True, False)
    as_later_process()
    monkeypatch.setattr(works, "__code__", (lambda number: pytest.fail("tried again")).__code__)
    assert (source.passes(works, 1), source.passes(works, 0)) == (True, False)
    [file] = cache.rglob("kernels-*")
    before = mx.device_info
    monkeypatch.setattr(mx, "device_info", lambda: {**before(), "architecture": "applegpu_g99x"})
    as_later_process()
    assert results.known(works, (1,)) is None
    monkeypatch.setattr(mx, "device_info", before)
    for content in ("", "[]", "{", '{"a": 1}', "[" * 100_000):
        file.write_text(content)
        as_later_process()
        assert results.known(works, (1,)) is None


def test_a_cache_that_cannot_be_written_keeps_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache / "file"))
    assert source.passes(works, 1)


def test_arrays_that_metal_takes_for_constants_go_without_the_kernel() -> None:
    assert not rows.takes(mx.zeros((1, 4)))
    assert rows.takes(mx.zeros((2, 4)))
    assert not rows.takes_quantized(4, 32, "affine", mx.zeros((1, 4), mx.uint32))
    assert rows.takes_quantized(4, 32, "affine", mx.zeros((2, 4), mx.uint32))


@gpu
@DTYPES
@pytest.mark.parametrize("texts", [1, 3])
@pytest.mark.parametrize("width", [44, 2048])
def test_add_norm(dtype: mx.Dtype, texts: int, width: int) -> None:
    x, added, rest = (
        random((2 * texts, width), dtype),
        random((texts, width), dtype, 1),
        random((width,), dtype, 2),
    )
    norm = RMSNorm(width, 1e-5)
    norm.weight = random((width,), mx.float32, 3)
    total, normed = add_norm.add_norm(x, added, rest, norm.weight, norm.eps, dtype)
    expected = x + mx.concatenate([added, mx.broadcast_to(rest, (texts, width))])
    np.testing.assert_array_equal(np.array(total.astype(mx.float32)), np.array(expected.astype(mx.float32)))
    close(normed, norm(expected))


@gpu
@DTYPES
@pytest.mark.parametrize("pairs", [False, True])
def test_turn(dtype: mx.Dtype, pairs: bool) -> None:
    heads, kept, width, count = 6, 2, 8, 3
    x = random((count, (heads + 2 * kept) * width), dtype)
    angles = random((count, width // 2), mx.float32, 1)
    spin = mx.stack([mx.cos(angles), mx.sin(angles)], axis=1)
    queries, fresh = turn.rotate_heads(x, spin, heads, pairs=pairs)
    parts = x.reshape(count, -1, 1, width)
    rotation = spin[:, 0][:, None, None], spin[:, 1][:, None, None]
    expected = (rotate_pairs if pairs else rotate)(parts[:, : heads + kept], rotation)
    close(queries, expected[:, :heads])
    close(fresh[0], expected[:, heads:])
    close(fresh[1], parts[:, heads + kept :], 0)


@gpu
@DTYPES
@pytest.mark.parametrize(("heads", "kept", "width", "spins"), [(16, 8, 128, 1), (3, 1, 24, 3), (4, 2, 10, 3)])
def test_norm_turn(dtype: mx.Dtype, heads: int, kept: int, width: int, spins: int) -> None:
    """As the plain form splits a product, whose roundings to the dtype it has."""
    x, angles = random((3, (heads + 2 * kept) * width), dtype), random((spins, width // 2), mx.float32, 1)
    spin = mx.stack([mx.cos(angles), mx.sin(angles)], axis=1).astype(dtype)
    stack: Any = SimpleNamespace(num_attention_heads=heads, num_key_value_heads=kept, head_dim=width)
    split = Splitting(stack, [random((width,), mx.float32, seed) for seed in (2, 3)], 1e-5, dtype)
    queries, fresh = norm_rotate.norm_rotate(x, spin, split.gains, heads, 1e-5)
    with mock.patch.object(source, "passes", return_value=False):
        plain = split(x, spin)
    for found, expected in zip((queries, fresh[0]), plain[:2], strict=True):
        close(found, expected)
    close(fresh[1], plain[2], 0)


@gpu
@pytest.mark.parametrize("shape", [(9, 1028), (4, 67)])
def test_noise_is_the_hosts(shape: tuple[int, ...]) -> None:
    seeds, steps = [0, 5, 2**64 - 1], [0, 77, 2**40]
    found = np.array(noise.uniform(seeds, steps, shape))
    for row, seed, step in zip(found, seeds, steps, strict=True):
        np.testing.assert_array_equal(row, HostNoise(seed).uniform(step, shape))


@gpu
@DTYPES
@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize(("columns", "width"), [(9252, 2048), (131, 64)])
def test_rows(dtype: mx.Dtype, count: int, columns: int, width: int) -> None:
    x, weight = random((count, width), dtype), random((columns, width), mx.float32, 1) * width**-0.5
    weight = weight.astype(dtype)
    found = rows.product(x, weight)
    wide = x.astype(mx.float32), weight.astype(mx.float32)
    close(found, mx.array(np.array(wide[0], np.float64) @ np.array(wide[1], np.float64).T).astype(dtype), 4)


@gpu
@DTYPES
def test_a_row_is_the_same_beside_any_others(dtype: mx.Dtype) -> None:
    x, weight = random((4, 512), dtype), random((96, 512), dtype, 1)
    every = rows.product(x, weight)
    for count in (2, 3):
        for first in range(4 - count):
            part = rows.product(x[first : first + count], weight)
            assert bool((part == every[first : first + count]).all())


@gpu
@DTYPES
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize(("columns", "width", "group"), [(9253, 2048, 64), (131, 256, 32), (7, 128, 128)])
def test_quantized_rows(dtype: mx.Dtype, bits: int, count: int, columns: int, width: int, group: int) -> None:
    x, weight = random((count, width), dtype), random((columns, width), mx.float32, 1) * width**-0.5
    parts = mx.quantize(weight.astype(dtype), group, bits)
    found = rows.quantized_product(x, *parts, bits=bits, group_size=group)
    numbers = [np.array(mx.dequantize(*parts, group, bits).astype(mx.float32), np.float64)]
    numbers.append(np.array(x.astype(mx.float32), np.float64))
    close(found, mx.array((numbers[1] @ numbers[0].T).astype(np.float32)).astype(dtype), 4)


@gpu
def test_a_quantized_row_is_the_same_beside_any_others() -> None:
    x, parts = random((4, 512), mx.bfloat16), mx.quantize(random((96, 512), mx.bfloat16, 1), 64, 4)
    every = rows.quantized_product(x, *parts, bits=4, group_size=64)
    for first in range(3):
        part = rows.quantized_product(x[first : first + 2], *parts, bits=4, group_size=64)
        assert bool((part == every[first : first + 2]).all())

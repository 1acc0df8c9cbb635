"""The path of products of two rows: by dtype, chip and MLX version, or as asked for."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn

import mlx_port
from mlx_port.kernels import row_paths, source
from mlx_port.kernels.row_paths import choose, chosen
from mlx_port.steps import rows
from tests.mlx_port.launches import STAND_IN, as_on_metal, launches
from tts_core.errors import UsageError

M1, M2, M3, M5 = 13, 14, 15, 17
OLD, NEW = (0, 32, 0), (0, 32, 4)


@pytest.fixture(autouse=True)
def fresh():
    chosen.cache_clear()
    yield
    chosen.cache_clear()


ELSEWHERE = (("cuda", 0, NEW, "kernel"), ("cpu", 0, NEW, "mlx"))
FLOATS = ("float32", "bfloat16", "float16")


@pytest.mark.parametrize(
    ("dtype", "backend", "generation", "version", "path"),
    [
        ("float32", "metal", M1, NEW, "kernel"),
        ("float32", "metal", M5, NEW, "kernel"),
        ("bfloat16", "metal", M1, NEW, "kernel"),
        ("float16", "metal", M2, NEW, "kernel"),
        ("bfloat16", "metal", M3, OLD, "kernel"),
        ("bfloat16", "metal", M3, (0, 32, 1), "mlx"),
        ("float16", "metal", M5, NEW, "mlx"),
        ("bfloat16", "metal", M5, (0, 40), "mlx"),
        (row_paths.QUANTIZED, "metal", M2, NEW, "mlx"),
        *((dtype, *each) for dtype in (*FLOATS, row_paths.QUANTIZED) for each in ELSEWHERE),
    ],
)
def test_the_path(dtype: str, backend: str, generation: int, version: tuple[int, ...], path: str) -> None:
    found = choose(dtype, backend=backend, generation=generation, version=version)
    assert found.path == path
    assert backend != "metal" or dtype not in FLOATS or "mlx#" in found.why


@pytest.mark.parametrize("path", ["mlx", "single"])
def test_a_path_can_be_forced(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLX_PORT_ROWS", path)
    found = chosen("float32")
    assert found.path == path
    assert found.why == f"MLX_PORT_ROWS={path}"


def test_a_bad_choice_is_refused_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLX_PORT_ROWS", "fast")
    with pytest.raises(UsageError, match=r"^MLX_PORT_ROWS: 'fast' is not one of mlx, single, kernel$"):
        mlx_port.load("/no/such/folder")


def test_a_kernel_that_does_not_run_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLX_PORT_ROWS", "kernel")
    monkeypatch.setattr(source, "on_gpu", lambda: False)
    source.passes.cache_clear()
    with pytest.raises(UsageError, match=r"^MLX_PORT_ROWS: the kernel does not run here; use mlx or single$"):
        chosen("float32")
    source.passes.cache_clear()


def test_without_the_kernel_rows_go_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_paths, "choose", lambda *_, **__: row_paths.PathChoice("kernel", "faster"))
    monkeypatch.setattr(source, "passes", lambda *trial: False)
    assert chosen("float32").path == "single"
    assert chosen(row_paths.QUANTIZED).path == "mlx"


def linear(bias: bool) -> nn.Linear:
    return nn.Linear(64, 48, bias=bias)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("path", ["mlx", "single"])
def test_rows_of_a_path_do_not_depend_on_each_other(
    path: str, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit: a row has the same product beside any other row, and in either place."""
    monkeypatch.setenv("MLX_PORT_ROWS", path)
    apply, random = rows.product(linear(bias)), np.random.default_rng(2)
    x = [mx.array(random.normal(size=64).astype(np.float32)) for _ in range(3)]
    first = np.array(apply(mx.stack([x[0], x[1]])))
    for pair, row in (((x[0], x[2]), 0), ((x[2], x[0]), 1)):
        np.testing.assert_array_equal(np.array(apply(mx.stack(list(pair))))[row], first[0])


@pytest.mark.parametrize("bias", [False, True])
def test_paths_agree(bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = linear(bias), mx.random.normal((2, 64), key=mx.random.key(0))
    monkeypatch.setenv("MLX_PORT_ROWS", "single")
    np.testing.assert_allclose(np.array(rows.product(layer)(x)), np.array(layer(x)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("count", "width", "found"), [(2, 64, 1), (4, 64, 1), (5, 64, 0), (1, 64, 0), (2, 62, 0)]
)
def test_the_kernel_takes_a_few_rows_of_whole_vectors(
    count: int, width: int, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "chosen", lambda *_, **__: row_paths.PathChoice("kernel", ""))
    layer = nn.Linear(width, 8, bias=False)
    x = mx.zeros((count, width))
    mx.eval(layer.weight, x)
    with as_on_metal():
        made = launches(rows.product(layer)(x))
    assert made[STAND_IN] == found  # as_on_metal's custom kernel
    assert (made["Matmul"] > 0) == (not found)


@pytest.mark.parametrize(
    ("bits", "mode", "found"), [(4, "affine", 1), (8, "affine", 1), (6, "affine", 0), (4, "mxfp4", 0)]
)
def test_the_kernel_takes_affine_codes_of_4_and_8_bits(
    bits: int, mode: str, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "chosen", lambda *_, **__: row_paths.PathChoice("kernel", ""))
    layer, x = nn.QuantizedLinear(128, 8, bias=False, group_size=32, bits=bits, mode=mode), mx.zeros((2, 128))
    mx.eval(layer.parameters(), x)
    with as_on_metal():
        made = launches(rows.product(layer)(x))
    assert made[STAND_IN] == found
    assert made["QuantizedMatmul"] == (not found)

"""Choice of the kernel for products of two to four rows, by chip, from a table of facts.

Guidance makes every product of a step one of two rows, and MLX has a slow path for some of them.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Literal, cast, get_args

import mlx.core as mx

from mlx_port.kernels import rows, source
from mlx_port.runtime.arithmetic import generation
from tts_core.errors import UsageError

Path = Literal["mlx", "single", "kernel"]  # MLX's product, one product a row, the kernel in rows.py
VARIABLE = "MLX_PORT_ROWS"
NEWEST = 99


@dataclass(frozen=True)
class Fact:
    """A path for some products. The first fact that fits a product decides.

    generations: of Apple's GPUs, first and last: 13 is M1, 14 M2, 15 M3.  since: MLX version.
    """

    backend: Literal["metal", "cuda", "cpu"]
    dtypes: tuple[str, ...]
    path: Path
    why: str
    source: str
    generations: tuple[int, int] = (0, NEWEST)
    since: tuple[int, ...] = (0,)


HALVES, EVERY = ("bfloat16", "float16"), ("bfloat16", "float16", "float32")
QUANTIZED = "quantized weights"
MEASURED = "measured: docs/measured/speed.md"
FACTS = (
    Fact("cpu", EVERY, "mlx", "the BLAS reads a weight once for all rows", MEASURED),
    Fact("cpu", (QUANTIZED,), "mlx", "our kernels are for GPUs", "mlx_port/kernels"),
    Fact("cuda", EVERY, "kernel", "cuBLAS takes 1.2 to 1.7 times as long", MEASURED),
    Fact("cuda", (QUANTIZED,), "kernel", "as fast as 16 bits; 4 and 8 bits, affine", MEASURED),
    Fact(
        "metal", (QUANTIZED,), "mlx", "MLX has products of few rows, qmv and qmv_wide", "ml-explore/mlx#3764"
    ),
    Fact(
        "metal", HALVES, "mlx", "MLX has a product of few rows, gemv_wide",
        "ml-explore/mlx#3888, since 0.32.1", generations=(15, NEWEST), since=(0, 32, 1),
    ),
    Fact(
        "metal", HALVES, "kernel", "MLX pads the rows to a tile: 56 GB/s where one row has 161",
        "ml-explore/mlx#3661", generations=(15, NEWEST),
    ),
    Fact(
        "metal", HALVES, "kernel", "MLX pads the rows to a tile on M1 and M2: 2.9 times as long on an M1 Pro",
        "ml-explore/mlx#3967",
    ),
    Fact(
        "metal", ("float32",), "kernel", "MLX pads float32 rows to a tile on every chip",
        "ml-explore/mlx#3888: half precision only",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class PathChoice:
    """A path and its reason."""

    path: Path
    why: str


def choose(dtype: str, *, backend: str, generation: int, version: tuple[int, ...]) -> PathChoice:
    """Choose the path of weights of one dtype, or of QUANTIZED ones.

    backend: "metal", "cuda" or "cpu".  generation: 0 if not Apple's.
    """
    for fact in FACTS:
        here = fact.backend == backend and fact.generations[0] <= generation <= fact.generations[1]
        if here and dtype in fact.dtypes and fact.since <= version:
            return PathChoice(fact.path, f"{fact.why} ({fact.source})")
    raise ValueError(f"rows: no fact about {dtype} on {backend}, generation {generation}")


@cache
def chosen(dtype: str) -> PathChoice:
    """Choose the path on this machine, as `choose`. Raises UsageError for an unknown MLX_PORT_ROWS."""
    wanted = forced()
    if wanted is not None:
        return PathChoice(wanted, f"{VARIABLE}={wanted}")
    backend = "cpu" if not source.on_gpu() else "metal" if mx.metal.is_available() else "cuda"
    found = choose(dtype, backend=backend, generation=generation(), version=_version())
    if found.path == "kernel" and not _runs(dtype):
        return PathChoice("mlx" if dtype == QUANTIZED else "single", "the kernel does not run here")
    return found


def forced() -> Path | None:
    """Return the path that MLX_PORT_ROWS names. Raises UsageError for an unknown one."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return None
    if wanted not in get_args(Path):
        raise UsageError(f"{VARIABLE}: {wanted!r} is not one of {', '.join(get_args(Path))}")
    if wanted == "kernel" and not (_runs("bfloat16") and _runs(QUANTIZED)):
        raise UsageError(f"{VARIABLE}: the kernel does not run here; use mlx or single")
    return cast(Path, wanted)


def _runs(dtype: str) -> bool:
    """Return True if the kernel passes its trial. Of quantized weights, for the form that all models have;
    mlx_port.steps.rows tries a layer's own.
    """
    if dtype == QUANTIZED:
        return source.passes(rows.quantized_trial, mx.bfloat16, 4, 64, 0)
    return source.passes(rows.trial, getattr(mx, dtype))


def _version() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", metadata.version("mlx"))[:3])

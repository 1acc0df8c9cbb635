"""Bytes of a job on one machine: weights and rows exact by shape, and the work of steps and codecs, which
constants that benchmarks/memory.py measured bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tts_core.memory.machine import Machine
from tts_core.nn.windows import ceil_power

SCORES = 256 * 2**20  # tts_core.nn.attention's budget
LOGITS = 10  # live copies of a row's logits during sampling
TOGETHER = 1024  # positions of several texts that one pass reads, at most
LEAST = 16  # positions of a text in a captured pass, with those that fill it up
CACHE_CHUNK = 256  # rows by which a cache grows

# Tensors of a codec's widest layer that are live at once. torch: counted in a residual unit; on CUDA plus
# one for cuDNN's workspace (measured). MLX: measured with its allocator on a CPU with one matmul per tap, on
# a CPU with the native convolutions that Metal uses (not measured on Metal), and on CUDA; MLX allocates ahead
# of the computation.
LIVE: dict[str, int] = {
    "torch-cpu": 6,
    "torch-cuda": 7,
    "torch-mps": 6,
    "mlx-cpu": 17,
    "mlx-metal": 24,
    "mlx-cuda": 48,
}
# Memory besides our own arrays, measured. torch on a CPU: lazily loaded code, oneDNN's primitives.
# MLX on a CPU: its cache of freed buffers, 32 MB, and code. CUDA: cuBLAS's workspaces, 32 MB for each of the
# streams of a generation: torch's steps, captures and codec, MLX's two
LIBRARIES: dict[str, int] = {
    "torch-cpu": 150 * 2**20,
    "torch-cuda": 96 * 2**20,
    "torch-mps": 0,
    "mlx-cpu": 82 * 2**20,
    "mlx-metal": 0,
    "mlx-cuda": 64 * 2**20,
}
OVERLAPS = ("torch-cuda",)  # run codecs beside the steps, on a stream with a pool of memory of its own
MEASURED: dict[str, str] = {  # the machine of a backend's constants
    "torch-cpu": "Linux, x86-64",
    "torch-cuda": "one H200 and one H100",
    "mlx-cpu": "Linux, x86-64",
    "mlx-cuda": "one H200",
}


class Footprint(NamedTuple):
    """Bytes of a job.

    weights, libraries: live from loading on.
    row: keys, values and states of the streams of all texts.
    work: the most that is live beside them.
    peak: the same if rows stay in every stage, as beside other texts.
    minute: keys and values of a minute of speech of all texts, in a cache that is as long as the speech.
    sound: of the work, the codec's largest window, as stated.
    graphs: of the work, what captured calls keep; CUDA's allocator counts it as free.
    """

    weights: int
    libraries: int
    row: int
    work: int
    peak: int
    minute: int
    sound: int = 0
    graphs: int = 0

    @property
    def loaded(self) -> int:
        """Bytes live from loading on."""
        return self.weights + self.libraries

    @property
    def running(self) -> int:
        """Bytes that a generation adds at its peak."""
        return self.row + self.work

    @property
    def total(self) -> int:
        """Bytes at the peak."""
        return self.loaded + self.running


def footprint(
    machine: Machine,
    *,
    weights: int,
    row: int,
    stages: Sequence[int],
    freed: Sequence[int] = (),
    minute: float,
    sound: int,
    graphs: int = 0,
) -> Footprint:
    """Build a footprint; weights, row, sound and graphs as there.

    stages: bytes beside the rows, one after the other.
    freed: bytes of stages before the rows are there, or after.
    minute: bytes of keys and values.
    """
    work = max(*stages, *(stage - row for stage in freed))
    libraries, peak = LIBRARIES[machine.backend], max(*stages, *freed)
    return Footprint(weights, libraries, row, work, peak, round(minute), sound, graphs)


def beside_and_after(machine: Machine, sound: int) -> tuple[int, int]:
    """Split the bytes of a codec into those beside the steps, and those after them, as measured."""
    sound = round(machine.measured * sound)
    return (sound, 0) if machine.backend in OVERLAPS else (0, sound)


def scores(rows: int, keys: int) -> int:
    """Count the bytes of two score matrices in float32, up to the budget that attention's blocks keep to."""
    return min(SCORES, 2 * 4 * rows * keys)


def layer(rows: int, row: int, *, heads: int, keys: int) -> int:
    """Count the bytes of one layer: `row` for each of its rows, and the scores of their heads."""
    return rows * row + scores(rows * heads, keys)


def gated_row(width: int, inner: int, heads: int, size: int) -> int:
    """Count the bytes live in a layer for one row, in its gated feed-forward or in its attention.

    inner: width of the feed-forward.
    heads: width of all query heads, whose rotations are float32.
    size: bytes of a number.
    """
    return max(size * (2 * width + 4 * inner), size * (2 * width + 4 * heads) + 3 * 4 * heads)


def read_at_once(texts: int, positions: int, backend: str) -> int:
    """Count the positions of texts that one pass reads, with those that fill it up. positions: of a text."""
    if backend in OVERLAPS:
        return (
            min(ceil_power(texts) * filled(positions), max(filled(positions), TOGETHER)) if positions else 0
        )
    return min(texts * positions, max(positions, TOGETHER))


def filled(positions: int) -> int:
    """Return the positions of a text in a captured pass: a power of two, beyond TOGETHER in chunks."""
    return rounded(positions) if positions > TOGETHER else max(LEAST, ceil_power(positions))


def passes(texts: int, positions: int, row: int, *, heads: int, backend: str) -> int:
    """Count the bytes that captured passes over prompts keep: `row` for each of their rows, and scores."""
    if backend not in OVERLAPS:
        return 0
    read = min(TOGETHER, read_at_once(texts, positions, backend))
    return layer(read, row, heads=heads, keys=min(TOGETHER, positions))


def sampling(logits: int) -> int:
    """Count the bytes of sampling from so many logits: copies of them, and their candidates."""
    return LOGITS * 4 * logits


def widest(machine: Machine, elements: int, live: Mapping[str, int] = LIVE) -> int:
    """Count the bytes of the live tensors of a codec's widest layer.

    elements: of one.  live: tensors, by backend.
    """
    return live[machine.backend] * machine.wide * elements


def rounded(rows: int) -> int:
    """Return the rows of a cache that grows by CACHE_CHUNK."""
    return -(-rows // CACHE_CHUNK) * CACHE_CHUNK

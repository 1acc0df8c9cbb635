"""Memory estimates: terms in bytes, phases in sequence, and each backend's own memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

BACKENDS: tuple[str, ...] = ("torch-cpu", "torch-cuda", "torch-mps", "mlx-cpu", "mlx-metal", "mlx-cuda")
BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}

SCORES = 256 * 2**20  # tts_core.nn.attention's budget
LOGITS = 10  # live copies of a row's logits during sampling
TOGETHER = 1024  # positions of several texts that one pass reads, at most
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
    "torch-cpu": 112 * 2**20,
    "torch-cuda": 96 * 2**20,
    "torch-mps": 0,
    "mlx-cpu": 48 * 2**20,
    "mlx-metal": 0,
    "mlx-cuda": 64 * 2**20,
}


# Backends that run codecs on a stream of their own, whose pool of memory is not that of the steps
OVERLAPS = ("torch-cuda",)
FOLLOWING = (
    "they follow each other, except on torch-cuda, where the codec runs beside the steps."  # for tables
)


class Term(NamedTuple):
    """One line of an estimate."""

    name: str
    bytes: int
    why: str


class Phase(NamedTuple):
    """Terms that are live at the same time; they are freed before the next phase begins."""

    name: str
    terms: tuple[Term, ...]

    @property
    def bytes(self) -> int:
        """Sum of its terms."""
        return sum(term.bytes for term in self.terms)


@dataclass(frozen=True)
class Estimate:
    """Estimated bytes on one backend.

    kept: terms live from loading on.  phases: of a generation, in order; a term may be in several.
    """

    backend: str
    kept: tuple[Term, ...]
    phases: tuple[Phase, ...]

    @property
    def terms(self) -> tuple[Term, ...]:
        """All terms, in the order of a table: weights, then phases, libraries last."""
        *weights, libraries = self.kept
        running = dict.fromkeys(term for phase in self.phases for term in phase.terms)
        return (*weights, *running, libraries)

    def __getitem__(self, name: str) -> Term:
        """Return the term of a name."""
        return next(term for term in self.terms if term.name == name)

    @property
    def loaded(self) -> int:
        """Bytes live from loading on."""
        return sum(term.bytes for term in self.kept)

    @property
    def running(self) -> int:
        """Bytes that a generation adds at its peak: its largest phase."""
        return max(phase.bytes for phase in self.phases)

    def running_beside(self, name: str) -> int:
        """Bytes that a generation adds at its peak if the term of this name is there already."""
        return self.beside(name).running

    def beside(self, name: str) -> Estimate:
        """Estimate the same if the term of this name is there already."""
        phases = [
            Phase(phase.name, tuple(term for term in phase.terms if term.name != name))
            for phase in self.phases
        ]
        return replace(self, phases=tuple(phases))

    @property
    def total(self) -> int:
        """Bytes at the peak."""
        return self.loaded + self.running


def with_sound(backend: str, phases: Sequence[Phase], sound: Phase) -> tuple[Phase, ...]:
    """Add the phase that makes sound from what the others compute: beside each of them, or after them."""
    if backend not in OVERLAPS:
        return (*phases, sound)
    return tuple(Phase(one.name, tuple(dict.fromkeys((*one.terms, *sound.terms)))) for one in phases)


def libraries(backend: str) -> Term:
    """Return the memory of libraries, besides our own arrays."""
    return Term("libraries", LIBRARIES[backend], "workspaces and caches of BLAS and convolutions")


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
    """Count the positions of texts that one pass reads. positions: of a text."""
    return min(texts * positions, positions if backend == "torch-cuda" else max(positions, TOGETHER))


def activations(used: int, where: str, logits: int) -> Term:
    """Return what one layer uses, in bytes, and sampling from so many logits.

    where: the layer's rows, in words.
    """
    return Term(
        "activations", used + LOGITS * 4 * logits, f"one layer of {where}; logits and their candidates"
    )


def rounded(rows: int) -> int:
    """Return the rows of a cache that grows by CACHE_CHUNK."""
    return -(-rows // CACHE_CHUNK) * CACHE_CHUNK

"""Block sizes of attention: pure integers, the same for both sides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from tts_core.errors import ResourceError

LARGEST_BLOCK = 2**31 - 1  # score elements: 32-bit indexing corrupts more on MPS (ComfyUI #14837)
LONGEST_KEYS = (
    16384  # the sum over keys: M1 and M2 read past a matmul operand from 32767 (pytorch #183535, #195163)
)


@dataclass(frozen=True)
class AttentionPolicy:
    """Limits for computing attention. Every policy gives the same result, up to rounding.

    q_chunk, k_chunk: most query rows and keys in a block; None lets the budget decide.
    budget_bytes: memory for a block's intermediates; None uses a quarter of the free memory.
    native: use the framework's kernel if it is exact on this device and its scores fit the budget.
    """

    q_chunk: int | None = None
    k_chunk: int | None = None
    budget_bytes: int | None = 256 * 2**20
    native: bool = True

    def __post_init__(self) -> None:
        for name in ("q_chunk", "k_chunk", "budget_bytes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}: {value} is not a positive number; give one, or None")


@dataclass(frozen=True)
class AttentionSizes:
    """Sizes of an attention call: lanes (batch x key heads), query heads per key head, rows, keys, widths."""

    lanes: int
    group: int
    rows: int
    keys: int
    width: int
    value_width: int
    itemsize: int  # bytes of the accumulation dtype
    causal: bool = False
    copies: int = 4  # of a block's scores that are live at once

    def block_bytes(self, lanes: int, rows: int, keys: int) -> int:
        """Count the bytes of one block: casts and copies of its inputs, its scores, three accumulators."""
        per_row = self.group * (2 * self.width + 3 * self.value_width + self.copies * keys + 6)
        return self.itemsize * lanes * (rows * per_row + 2 * keys * (self.width + self.value_width))


# Order and limits of shrinking: fewer rows read every key more often, small blocks wait for launches
# (32,768 tokens, 16 heads of 128, H200: 240 ms in blocks of 1024 x 512, 199 ms in 1024 x 2048)
SHRINKING = (
    ("keys", 2048),
    ("rows", 1024),
    ("keys", 512),
    ("rows", 128),
    ("keys", 128),
    ("rows", 32),
    ("lanes", 1),
)


def block_sizes(
    scores: AttentionSizes, budget_bytes: int, *, policy: AttentionPolicy
) -> tuple[int, int, int]:
    """Choose lanes, query rows and keys per block that fit the budget.

    Causal calls start with an eighth of their rows: a block is computed up to its last row's key, so at most
    an eighth of the computed scores is above the diagonal.
    Raises ResourceError if one row and one key do not fit.
    """
    most = max(-(-scores.rows // 8), 128) if scores.causal else scores.rows
    sizes = {
        "lanes": max(scores.lanes, 1),
        "rows": max(min(scores.rows, policy.q_chunk or most), 1),
        "keys": max(min(scores.keys, policy.k_chunk or scores.keys, LONGEST_KEYS), 1),
    }

    def fits() -> bool:
        elements = sizes["lanes"] * scores.group * sizes["rows"] * sizes["keys"]
        return scores.block_bytes(**sizes) <= budget_bytes and elements <= LARGEST_BLOCK

    for name, least in SHRINKING:
        while sizes[name] > least and not fits():
            sizes[name] = -(-sizes[name] // 2)
    while not fits():
        if sizes["rows"] == sizes["keys"] == 1:
            needed = scores.block_bytes(1, 1, 1)
            raise ResourceError(
                f"attention budget: {budget_bytes} bytes are too few for one row; allow at least {needed}"
            )
        wide = sizes["keys"] >= sizes["rows"] * scores.group or sizes["rows"] == 1
        name = "keys" if wide and sizes["keys"] > 1 else "rows"
        sizes[name] = -(-sizes[name] // 2)
    return sizes["lanes"], sizes["rows"], sizes["keys"]


def spans(total: int, size: int) -> Iterator[slice]:
    """Cut [0, total) into pieces of at most `size`."""
    return (slice(start, min(start + size, total)) for start in range(0, total, size))


def lane_spans(shape: Sequence[int], lanes: int) -> Iterator[tuple[slice, ...]]:
    """Yield index tuples that cut the leading axes of `shape` into pieces of at most `lanes` elements."""
    pieces: list[list[slice]] = []
    for size in reversed(shape):
        step = max(1, min(size, lanes))
        pieces.insert(0, list(spans(size, step)))
        lanes //= step
    return product(*pieces)

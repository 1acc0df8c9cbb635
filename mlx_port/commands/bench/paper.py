"""Predict the time of a step on Apple's chips, from published figures only.

A step reads its weights once and launches its kernels one after the other: time = bytes / (share · speed) +
launches · cost. Share and cost are fitted to the speeds that mlx-lm publishes of one model in five
quantizations on one chip; the speeds of the chips' memory are Apple's. Nothing here was measured by this
project.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np


class Chip(NamedTuple):
    """An Apple chip. memory_speed: GB/s.  smaller: that of variants with fewer cores, and its source."""

    name: str
    memory_speed: float
    source: str
    smaller: tuple[float, str] | None = None


_TABLE = "https://llmcheck.net/blog/apple-silicon-memory-bandwidth-llm/"
_ULTRA = "https://resourcefulman.net/2025/03/06/apples-best-new-chipset-isnt-the-m4-max"
_M5 = "https://www.lowyat.net/2026/385170/apple-m5-pro-m5-max"
CHIPS = (
    Chip("M1", 68, _TABLE),
    Chip("M1 Pro", 200, _TABLE),
    Chip("M1 Max", 400, _TABLE),
    Chip("M1 Ultra", 800, _TABLE),
    Chip("M2", 100, _TABLE),
    Chip("M2 Pro", 200, _TABLE),
    Chip("M2 Max", 400, _TABLE),
    Chip("M2 Ultra", 800, _TABLE),
    Chip("M3", 100, _TABLE),
    Chip("M3 Pro", 150, _TABLE),
    Chip("M3 Max", 400, _TABLE, smaller=(300, "https://locara.dev/docs/notes/mac-hardware-lineup")),
    Chip("M3 Ultra", 819, _ULTRA),
    Chip("M4", 120, _TABLE),
    Chip("M4 Pro", 273, _TABLE),
    Chip("M4 Max", 546, _TABLE, smaller=(410, "https://english.worldmagazine.it/431260")),
    Chip("M5", 153, "https://dig.watch/updates/apple-launches-m5-with-bigger-ai-gains"),
    Chip("M5 Pro", 307, _M5),
    Chip("M5 Max", 614, _M5),
)

# mlx-lm's BENCHMARKS.md: Qwen3-4B-Instruct-2507 on an M4 Max with 64 GB (546 GB/s), mlx 0.29.2, a prompt of
# 2,048 tokens and 128 new ones; bits per weight with scales → tokens a second
PUBLISHED = {16: 52.47, 8.5: 86.907, 6.5: 104.68, 5.5: 116.39, 4.5: 134.52}
PUBLISHED_SPEED, PUBLISHED_WEIGHTS = 546, 4.022e9
PUBLISHED_CACHE = 36 * 2 * 8 * 128 * 2 * (2048 + 64)  # layers, keys and values, heads, width, bytes, tokens
PUBLISHED_LAUNCHES = 36 * 19 + 5  # counted in mlx-lm's qwen3.py: 19 operations a layer


class Fit(NamedTuple):
    """share: of the published memory speed that a step reaches.  cost: of a launch, in ms."""

    share: float
    cost: float


def fit() -> Fit:
    """Fit share and cost to mlx-lm's figures by least squares."""
    slope, rest = map(float, np.polyfit(*_published(), 1))  # ms a byte, ms a step
    return Fit(1 / (slope * PUBLISHED_SPEED * 1e6), rest / PUBLISHED_LAUNCHES)


def worst_error() -> float:
    """Return the largest relative difference between the fit and mlx-lm's figures."""
    share, cost = fit()
    speed = share * PUBLISHED_SPEED * 1e6
    fitted = (
        (size / speed + PUBLISHED_LAUNCHES * cost, time) for size, time in zip(*_published(), strict=True)
    )
    return max(abs(made / time - 1) for made, time in fitted)


def _published() -> tuple[list[float], list[float]]:
    """Bytes and milliseconds of mlx-lm's figures."""
    bytes_read = [bits / 8 * PUBLISHED_WEIGHTS + PUBLISHED_CACHE for bits in PUBLISHED]
    return bytes_read, [1000 / rate for rate in PUBLISHED.values()]


def predicted_ms(step_bytes: int, count: int, chip: Chip) -> float:
    """Predict milliseconds a step. count: launches."""
    share, cost = fit()
    return step_bytes / (share * chip.memory_speed * 1e6) + count * cost


def chip_of(device: str) -> Chip | None:
    """Find the chip of a device name such as "Apple M1 Pro"; None for any other."""
    found = re.fullmatch(r"(?:Apple )?(M\d+(?: (?:Pro|Max|Ultra))?)", device.strip())
    return None if found is None else next((chip for chip in CHIPS if chip.name == found[1]), None)

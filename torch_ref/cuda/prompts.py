"""Prompts of texts that join together, read in few passes: padded, so that few shapes come, each a graph.

Attention is causal: what fills a prompt up comes after it, and changes nothing in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ref.cuda.replayed import ReplayedAside
from torch_ref.layers.rope import Rotation
from tts_core.memory.footprint import LEAST, TOGETHER, filled
from tts_core.nn.host import Device
from tts_core.nn.windows import ceil_power


class PromptRows(NamedTuple):
    """A prompt among rows: its first one, how many, and the row of memory for its keys and values."""

    first: int
    count: int
    row: int


class Pass(NamedTuple):
    """Prompts that are read together.

    rows: (B·T,) int64, which of all rows; the last of a prompt again after it.
    spots: (B, 2) int64, as of `attend_prompts`; prompts without positions fill up the B.
    """

    rows: np.ndarray
    spots: np.ndarray


class Stack(Protocol):
    """Layers that read prompts."""

    def read(self, x: Tensor, spots: Tensor, memory: Any) -> tuple[Tensor, Tensor | None]:
        """Run B prompts of T rows; as of FusedStack."""
        ...


class PromptReader:
    """Reads prompts into the memory of a stack, both of which stay where they are.

    most: positions of a pass that is captured, at most.
    """

    def __init__(self, stack: Stack, memory: Any, host: Device, *, most: int = TOGETHER):
        self.stack, self.memory, self.host = stack, memory, host
        self._replayed = ReplayedAside(self._read, lambda: None, lambda shape: shape[0] <= most)

    def __call__(self, x: Tensor, prompts: Sequence[PromptRows]) -> Tensor:
        """Keep keys and values of prompts, whose rows are among x, (N, D). Waits for nothing.

        Returns the last row of each after the layers, (B, D), without prompts of no positions.
        """
        made, found = [x[:0]], list[int]()
        for reading in passes(prompts):
            made += self._replayed(x[self.host.to_device(reading.rows)], self.host.to_device(reading.spots))
            found += [index if count else -1 for index, count in reading.spots.tolist()]
        order = [found.index(prompt.row) for prompt in prompts if prompt.count]
        return torch.cat(made)[self.host.to_device(np.array(order, np.int64))]

    def prepare(self, x: Tensor, keys: Tensor | None = None) -> None:
        """Capture every pass that can be, and keep nothing.

        x: as of `warm`.  keys: (R, K, capacity, E), for as many prompts; None for those of a layer.
        """
        rows, _, capacity, _ = (self.memory.keys[0] if keys is None else keys).shape
        for texts, length in shapes(rows, capacity):
            no_spots = self.host.to_device(np.zeros((texts, 2), np.int64))
            self._replayed(x.new_zeros(texts * length, x.shape[1]), no_spots)

    @torch.inference_mode()
    def warm(self, x: Tensor) -> None:
        """Launch each kernel, and keep nothing. x: any tensor of the rows' dtype, (N, D)."""
        [reading] = passes([PromptRows(0, 1, 0)])
        self._read(x.new_zeros(len(reading.rows), x.shape[1]), self.host.to_device(0 * reading.spots))

    def _read(self, x: Tensor, spots: Tensor) -> Sequence[Tensor]:
        x, added = self.stack.read(x, spots, self.memory)
        firsts = torch.arange(0, len(x), len(x) // len(spots), device=x.device)
        last = firsts + (spots[:, 1] - 1).clamp(min=0)
        return (x[last] if added is None else x[last] + added[last],)


def lengthened(rotation: Rotation) -> Rotation:
    """Add positions to tables, (T, E/2) each, for those that fill up prompts."""
    cos, sin = (F.pad(item, (0, 0, 0, filled(len(item)) - len(item))) for item in rotation)
    return cos, sin


def shapes(texts: int, positions: int) -> list[tuple[int, int]]:
    """List the shapes (B, T) of captured passes over prompts of so many texts and positions, at most. The
    largest comes first: all others fit in its memory.
    """
    lengths, rows = powers(LEAST, filled(positions)), powers(1, ceil_power(texts))
    found = [(count, length) for length in lengths for count in rows if count * length <= TOGETHER]
    return sorted(found, key=lambda shape: (-shape[0] * shape[1], shape[0]))


def powers(first: int, last: int) -> list[int]:
    """List the powers of two from one to another."""
    return [1 << bit for bit in range(first.bit_length() - 1, last.bit_length())]


def passes(prompts: Sequence[PromptRows]) -> Iterator[Pass]:
    """Divide prompts into passes of at most TOGETHER positions, with what fills them up; a longer prompt is
    one by itself. Those without positions are in none.
    """

    def size(prompt: PromptRows) -> int:
        return filled(prompt.count)

    for length, found in groupby(sorted((prompt for prompt in prompts if prompt.count), key=size), size):
        alike, most = [*found], max(1, TOGETHER // length)
        for group in (alike[start : start + most] for start in range(0, len(alike), most)):
            free = ceil_power(len(group)) - len(group)
            firsts, counts, places = np.array(
                [*group, *[PromptRows(group[0].first, 0, 0)] * free], np.int64
            ).T
            rows = firsts[:, None] + np.minimum(np.arange(length), np.maximum(counts - 1, 0)[:, None])
            yield Pass(rows.ravel(), np.stack((places, counts), axis=1))

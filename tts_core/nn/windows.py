"""Input windows of stacks of 1-D convolutions: pure integers, for any kernel, stride and dilation.

To get a window's outputs exactly as in the whole run, feed the inputs of `input_span`, clipped to the
signal's ends (the layers' zero padding then has the same position as in the whole run), and drop the outputs
outside the window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True)
class Conv:
    """A strided, dilated 1-D convolution with symmetric zero padding."""

    kernel: int
    stride: int = 1
    dilation: int = 1
    padding: int = 0

    def output_length(self, length: int) -> int:
        """Count the outputs for `length` inputs; 0 if the kernel does not fit."""
        return max(0, (length + 2 * self.padding - self.dilation * (self.kernel - 1) - 1) // self.stride + 1)

    def input_span(self, start: int, stop: int) -> tuple[int, int]:
        """Find the inputs [first, last) that outputs [start, stop) read, on an endless signal."""
        reach = self.dilation * (self.kernel - 1) + 1
        return start * self.stride - self.padding, (stop - 1) * self.stride - self.padding + reach


@dataclass(frozen=True)
class ConvTranspose:
    """A transposed 1-D convolution; `padding` outputs are cut at each end."""

    kernel: int
    stride: int
    padding: int = 0
    output_padding: int = 0

    def output_length(self, length: int) -> int:
        """Count the outputs for `length` inputs."""
        return (
            max(0, (length - 1) * self.stride - 2 * self.padding + self.kernel + self.output_padding)
            if length
            else 0
        )

    def input_span(self, start: int, stop: int) -> tuple[int, int]:
        """Find the inputs [first, last) that outputs [start, stop) read, on an endless signal."""
        first = -(
            (self.kernel - 1 - start - self.padding) // self.stride
        )  # smallest i with start + p - i s <= kernel - 1
        return first, (stop - 1 + self.padding) // self.stride + 1


Layer = Conv | ConvTranspose


@dataclass(frozen=True)
class Window:
    """Units [start, stop) to produce, and units [first, last) to feed for them."""

    start: int
    stop: int
    first: int
    last: int


def output_length(layers: Sequence[Layer], length: int) -> int:
    """Count the outputs of the whole stack for `length` inputs."""
    for layer in layers:
        length = layer.output_length(length)
    return length


def input_span(layers: Sequence[Layer], start: int, stop: int) -> tuple[int, int]:
    """Find the inputs [first, last) of the stack that outputs [start, stop) read, on an endless signal."""
    for layer in reversed(layers):
        start, stop = layer.input_span(start, stop)
    return start, stop


def growing(total: int, first: int, largest: int) -> Iterator[tuple[int, int]]:
    """Cut [0, total) at first, 3 first, 7 first, ...: sizes double up to `largest`, so that speech starts
    early.

    The cuts do not depend on `total`.
    """
    if min(first, largest) < 1:
        raise ValueError(f"windows: sizes {first} and {largest} must be at least 1")
    start, size = 0, min(first, largest)
    while start < total:
        yield start, min(start + size, total)
        start, size = start + size, min(2 * size, largest)


def floor_power(number: int) -> int:
    """Return the largest power of two that is at most a number of at least 1."""
    return 1 << (number.bit_length() - 1)


def ceil_power(number: int) -> int:
    """Return the least power of two that is not below a number of at least 1."""
    return 1 << (number - 1).bit_length()


def in_powers(items: Sequence[Item], most: int) -> Iterator[Sequence[Item]]:
    """Divide into groups of a power of two, at most `most` or one, the largest first."""
    while items:
        count = floor_power(max(1, min(most, len(items))))
        yield items[:count]
        items = items[count:]

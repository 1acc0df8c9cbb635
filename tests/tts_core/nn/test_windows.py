"""Window arithmetic against brute force: inputs are listed, integer networks run whole and in windows."""

from itertools import pairwise

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from tts_core.nn.windows import Conv, ConvTranspose, growing, in_powers, input_span

CONVS = st.builds(
    Conv,
    kernel=st.integers(1, 8),
    stride=st.integers(1, 5),
    dilation=st.integers(1, 4),
    padding=st.integers(0, 9),
)
TRANSPOSED = st.builds(
    ConvTranspose,
    kernel=st.integers(1, 9),
    stride=st.integers(1, 5),
    padding=st.integers(0, 4),
    output_padding=st.integers(0, 1),
)
LAYERS = st.one_of(CONVS, TRANSPOSED)


def inputs_of(layer, output):
    """All inputs of an endless signal that one output reads."""
    if isinstance(layer, Conv):
        return [output * layer.stride - layer.padding + layer.dilation * k for k in range(layer.kernel)]
    reach = output + layer.padding
    near = reach // layer.stride
    return [i for i in range(near - 20, near + 20) if 0 <= reach - i * layer.stride < layer.kernel]


def run(layer, x):
    """Run the layer by its definition on integers modulo 2**64, exactly; all taps have different weights."""
    weights = 2 * np.arange(layer.kernel) + 1
    if isinstance(layer, Conv):
        x = np.pad(x, layer.padding)
        taps = layer.dilation * np.arange(layer.kernel)
        starts = np.arange(0, len(x) - taps[-1], layer.stride)
        return x[starts[:, None] + taps] @ weights
    if not len(x):
        return x
    full = np.zeros((len(x) - 1) * layer.stride + layer.kernel + layer.output_padding, dtype=np.int64)
    for i, value in enumerate(x):
        full[i * layer.stride : i * layer.stride + layer.kernel] += value * weights
    return full[layer.padding : max(layer.padding, len(full) - layer.padding)]


def run_all(layers, x):
    for layer in layers:
        x = run(layer, x)
    return x


@given(LAYERS, st.integers(-20, 20), st.integers(1, 7))
def test_span_of_one_layer_is_exactly_what_is_read(layer, start, count):
    read = [i for output in range(start, start + count) for i in inputs_of(layer, output)]
    first, last = layer.input_span(start, start + count)
    if read:
        assert (first, last) == (min(read), max(read) + 1)
    else:  # a stride beyond the kernel leaves outputs that no input reaches
        assert first >= last


@given(LAYERS, st.integers(0, 30))
def test_output_length(layer, length):
    if isinstance(layer, ConvTranspose):
        assume(layer.output_padding < layer.stride)
    assert layer.output_length(length) == len(run(layer, np.arange(length, dtype=np.int64)))


@given(st.lists(LAYERS, min_size=1, max_size=4), st.integers(-9, 9), st.integers(1, 5))
def test_span_of_a_stack_covers_all_that_is_read_and_no_more_than_needed_at_its_ends(layers, start, count):
    assume(all(not isinstance(layer, ConvTranspose) or layer.kernel >= layer.stride for layer in layers))
    needed = set(range(start, start + count))
    for layer in reversed(layers):
        needed = {i for output in needed for i in inputs_of(layer, output)}
        assume(len(needed) < 3000 and min(needed) > -10_000)
    first, last = input_span(layers, start, start + count)
    assert first <= min(needed)
    assert max(needed) < last


@given(st.integers(0, 5000), st.integers(1, 50), st.integers(1, 400))
def test_growing_covers_everything_once(total, first, largest):
    cuts = list(growing(total, first, largest))
    assert [start for start, _ in cuts] == [0, *(stop for _, stop in cuts)][: len(cuts)]
    assert (cuts[-1][1] if cuts else 0) == total
    sizes = [stop - start for start, stop in cuts]
    assert all(0 < size <= largest for size in sizes)
    assert sizes[:1] == [min(first, largest, total)] * bool(sizes)
    assert all(b <= 2 * a for a, b in pairwise(sizes))


@given(st.integers(0, 800), st.integers(0, 800), st.integers(1, 20), st.integers(1, 100))
def test_growing_stands_on_one_absolute_grid(total, more, first, largest):
    short, long = list(growing(total, first, largest)), list(growing(total + more, first, largest))
    assert [start for start, _ in short] == [start for start, _ in long][: len(short)]
    assert short[:-1] == long[: len(short)][:-1]


def test_groups_of_a_power_of_two() -> None:
    assert [[*in_powers(range(count), 4)] for count in (0, 1, 3, 7)] == [
        [],
        [range(1)],
        [range(2), range(2, 3)],
        [range(4), range(4, 6), range(6, 7)],
    ]
    assert [*in_powers("abc", 0)] == ["a", "b", "c"]

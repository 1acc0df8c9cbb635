"""Convolutions in pieces equal the whole, at every edge."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from torch_ref.layers import conv
from torch_ref.limits import Backend, enforce

LONGEST = 40


def tensors(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """All input and output sizes of every native call, except input channels of a plain convolution."""
    seen: list[int] = []
    for name in ("conv1d", "conv_transpose1d"):
        native = getattr(F, name)

        def watched(x, weight, *args, native=native, name=name, **kwargs):
            out = native(x, weight, *args, **kwargs)
            seen.extend([x.shape[0], x.shape[2], *out.shape, *([x.shape[1]] if "transpose" in name else [])])
            return out

        monkeypatch.setattr(conv.F, name, watched)
    return seen


def assert_in_windows(
    sizes: list[int], name: str, given: list[torch.Tensor], *how: int, atol: float = 1e-12
) -> None:
    """Compare a call in windows, none of which exceeds the limit, with the whole."""
    whole = getattr(F, name)(*given, *how)
    sizes.clear()
    pieces = getattr(conv, name)(*given, *how, longest=LONGEST)
    assert max(sizes) <= LONGEST
    torch.testing.assert_close(pieces, whole, rtol=0, atol=atol)


LENGTHS = [7, 39, 40, 41, 79, 80, 81, 83, 127, 200]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation"),
    [
        (1, 1, 0, 1),
        (7, 1, 3, 1),
        (7, 1, 3, 3),
        (4, 2, 1, 1),
        (6, 3, 2, 1),
        (10, 5, 3, 2),
        (3, 7, 4, 1),
        (2, 1, 9, 5),
    ],
)
def test_conv1d_in_windows_equals_the_whole(length, kernel, stride, padding, dilation, sizes):
    if length + 2 * padding < dilation * (kernel - 1) + 1:
        pytest.skip("shorter than the kernel: no output")
    given = tensors((2, 4, length), (6, 2, kernel), (6,))
    assert_in_windows(sizes, "conv1d", given, stride, padding, dilation, 2)


@pytest.mark.parametrize("length", [1, 2, *LENGTHS])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "output_padding", "dilation"),
    [
        (1, 1, 0, 0, 1),
        (4, 2, 1, 0, 1),
        (4, 2, 1, 1, 1),
        (10, 5, 3, 0, 1),
        (10, 5, 3, 4, 1),
        (3, 2, 0, 1, 2),
        (2, 5, 0, 4, 1),
        (7, 3, 2, 2, 1),
    ],
)
def test_conv_transpose1d_in_windows_equals_the_whole(
    length, kernel, stride, padding, output_padding, dilation, sizes
):
    if (length - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1 <= 0:
        pytest.skip("the padding eats every output")
    given = tensors((2, 4, length), (4, 3, kernel), (6,))
    assert_in_windows(sizes, "conv_transpose1d", given, stride, padding, output_padding, 2, dilation)


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("out", [39, 42, 123])
def test_more_output_channels_than_the_limit(groups, out, sizes):
    assert_in_windows(sizes, "conv1d", tensors((2, 6, 50), (out, 6 // groups, 5), (out,)), 1, 2, 1, groups)
    given = tensors((2, 6, 20), (6, out // groups, 5), (out,))
    assert_in_windows(sizes, "conv_transpose1d", given, 2, 2, 1, groups)


@pytest.mark.parametrize(
    ("shapes", "groups"),
    [(((90, 100, 9), (100, 2, 4), (2,)), 1), (((1, 60, 9), (60, 1, 4), (3,)), 3)],
    ids=["more items too", "groups with fewer outputs"],
)
def test_more_input_channels_than_the_limit(shapes, groups, sizes):
    assert_in_windows(sizes, "conv_transpose1d", tensors(*shapes), 2, 1, 0, groups, atol=1e-11)


def test_gradients_pass_through_the_windows():
    x, weight, bias = (tensor.requires_grad_() for tensor in tensors((1, 2, 90), (3, 2, 5), (3,)))
    whole = torch.autograd.grad(F.conv1d(x, weight, bias, 1, 2).square().sum(), (x, weight, bias))
    cut = torch.autograd.grad(
        conv.conv1d(x, weight, bias, 1, 2, longest=LONGEST).square().sum(), (x, weight, bias)
    )
    for one, other in zip(cut, whole, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-11)


def test_one_output_that_needs_too_much_is_refused():
    x, weight = tensors((1, 1, 100), (1, 1, 50))
    with pytest.raises(ValueError, match="spans more than 40"):
        conv.conv1d(x, weight, longest=LONGEST)
    with pytest.raises(ValueError, match="too many for 40"):
        conv.conv_transpose1d(x, weight, longest=LONGEST)


def test_output_padding_as_large_as_the_stride_is_refused():
    x, weight = tensors((1, 1, 5), (1, 1, 4))
    with pytest.raises(ValueError, match="output_padding 2"):
        conv.conv_transpose1d(x, weight, stride=2, output_padding=2)


@pytest.mark.parametrize("transposed", [False, True])
def test_parts_of_a_weight_are_packed(transposed: bool) -> None:
    """MPS reads a strided weight as if it were packed (pytorch#192212)."""
    call, shape = (conv.conv_transpose1d, (4, 70_000, 2)) if transposed else (conv.conv1d, (70_000, 4, 2))
    x, weight = torch.zeros(1, 4, 3, device="meta"), torch.zeros(*shape, device="meta")
    with enforce(Backend("mps", "2.11.0", "14.5")) as watch:
        assert call(x, weight).shape[1] == 70_000
        call(x, torch.zeros(2, *shape[:-1], device="meta").permute(1, 2, 0))
    assert watch.calls > 0

"""Products and attention of few rows in PyTorch on a CPU: a row's numbers do not depend on the other rows."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.tolerance import assert_within
from torch_ref.layers.attention import scaled_dot_product_attention
from torch_ref.limits import independent
from torch_ref.limits.independent import RowLinear, independent_rows, linear
from tts_core.nn.row_calls import FIXED, Calls

# of small Dia2, MARS5, MetaVoice and Qwen3-TTS networks, and odd ones
SHAPES = ((512, 512), (1536, 512), (2816, 512), (512, 1408), (2562, 512), (256, 512), (600, 256), (67, 45))


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


@pytest.fixture(params=[1, 2, 4])
def threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@torch.inference_mode()
def test_rows_are_those_alone_and_those_of_float32(shape: tuple[int, int], bias: bool) -> None:
    layer, x = nn.Linear(shape[1], shape[0], bias=bias), normal(33, shape[1])
    plain = layer(x)
    with independent_rows(layer):
        alone = torch.cat([layer(row[None]) for row in x])
        added = layer.bias.double() if bias else 0
        truth = (x.double() @ layer.weight.double().T + added).numpy()
        assert_within(alone.numpy(), plain.numpy(), truth, "rows")
        for count in range(1, 34):
            assert torch.equal(layer(x[:count, None])[:, 0], alone[:count])
            assert torch.equal(layer(x[33 - count :]), alone[33 - count :])
        assert torch.equal(layer(x[:32].view(16, 2, -1)).view(32, -1), alone[:32])


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("texts", [1, 2, 5, 16])
@pytest.mark.parametrize("equal", [False, True])
@torch.inference_mode()
def test_texts_attend_as_they_do_alone(texts: int, equal: bool) -> None:
    """Bit for bit, whatever the others' lengths and keys past their own; and as the masked form does."""
    counts = np.random.default_rng(texts).integers(1, 90, texts)
    counts[-1] = counts[0]
    if equal:
        counts[:] = 33
    queries, keys, values = (
        normal(texts, 4, 1, 16),
        normal(texts, 2, 90, 16, seed=2),
        normal(texts, 2, 90, 16, seed=3),
    )
    seen = torch.arange(90) < torch.from_numpy(counts)[:, None]
    mask = seen[:, None, None]

    def attended(chosen: slice, most: int) -> Tensor:
        near, heard = keys[chosen, :, :most], values[chosen, :, :most]
        own = mask[chosen, ..., :most]
        return scaled_dot_product_attention(queries[chosen], near, heard, own, scale=0.3, enable_gqa=True)

    masked = attended(slice(None), 90)
    layer = nn.Linear(1, 1)
    with independent_rows(layer, counts):
        shared = attended(slice(None), 90)
    for text in range(texts):
        with independent_rows(layer, counts[text : text + 1]):
            alone = attended(slice(text, text + 1), int(counts[text]))
        assert torch.equal(shared[text : text + 1], alone)
    torch.testing.assert_close(shared, masked, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("keys", [2, 9, 33, 600])
@pytest.mark.parametrize("length", [1, 2])
@torch.inference_mode()
def test_texts_attend_without_a_mask_as_they_do_alone(length: int, keys: int) -> None:
    layer, queries = nn.Linear(1, 1), normal(8, 4, length, 16)
    near, heard = normal(8, 2, keys, 16, seed=2), normal(8, 2, keys, 16, seed=3)

    def attended(rows: slice) -> Tensor:
        given = queries[rows], near[rows], heard[rows]
        return scaled_dot_product_attention(*given, is_causal=length == keys, enable_gqa=True)

    plain = attended(slice(None))
    with independent_rows(layer):
        shared = attended(slice(None))
        for row in range(8):
            assert torch.equal(shared[row : row + 1], attended(slice(row, row + 1)))
    torch.testing.assert_close(shared, plain, rtol=1e-4, atol=1e-5)


@torch.inference_mode()
def test_masks_are_not_read() -> None:
    """Nor may the host lack the numbers of keys of some rows; those past a ring buffer's end are clipped."""
    queries, keys = normal(2, 1, 1, 8), normal(2, 1, 5, 8, seed=2)
    mask, layer = torch.ones(2, 1, 1, 5, dtype=torch.bool, device="meta"), nn.Linear(1, 1)
    with independent_rows(layer, (7, 3)):
        found = scaled_dot_product_attention(queries, keys, keys, mask)
    near = keys[1:, :, :3]
    wanted = [F.scaled_dot_product_attention(queries[:1], keys[:1], keys[:1])]
    wanted.append(F.scaled_dot_product_attention(queries[1:], near, near))
    torch.testing.assert_close(found, torch.cat(wanted), rtol=1e-5, atol=1e-6)
    with independent_rows(layer), pytest.raises(AssertionError, match="0 numbers of keys for 2 rows"):
        scaled_dot_product_attention(queries, keys, keys, mask)


def test_outside_and_in_half_precision_layers_are_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(independent, "_calls", lambda *shape: pytest.fail("blocks"))
    layer, x = nn.Linear(8, 4), normal(3, 8)
    plain = layer(x)
    with independent_rows(layer.bfloat16()):
        layer(x.bfloat16())
    layer.float()
    assert torch.equal(linear(x, layer.weight), F.linear(x, layer.weight))
    assert layer(x).shape == plain.shape
    assert not independent.is_on()


def test_layers_stay_linear_layers_with_their_weights() -> None:
    network = nn.Sequential(nn.Linear(8, 4), nn.ReLU())
    names = list(network.state_dict())
    with independent_rows(network):
        assert independent.is_on()
    assert isinstance(network[0], RowLinear)
    assert list(copy.deepcopy(network).state_dict()) == names


def test_a_library_whose_rows_depend_on_each_other_gets_a_row_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(independent, "first_independent", lambda products, choices: None)
    independent._calls.cache_clear()
    assert independent._calls(3, 2, 1) == FIXED[-1] == Calls(1, 1)
    independent._calls.cache_clear()

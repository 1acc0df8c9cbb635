"""A text's keys and values on kernels against the plain layers, also where its length came before."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.torch_ref.cuda.dia.kernel_dia import network
from tests.torch_ref.cuda.marks import DEVICE, kernel_marks
from torch_ref.cuda.dia.reading import FusedReader

pytestmark = kernel_marks()


def text(length: int, seed: int) -> torch.Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.randint(1, 200, (length,), generator=random).int().to(DEVICE)


def plain(built: Any, tokens: torch.Tensor) -> torch.Tensor:
    """Keys and values of every layer, (2, L, K, S, E)."""
    source = built.read([tokens])
    return torch.stack([torch.cat(source.keys), torch.cat(source.values)])


@torch.inference_mode()
@pytest.mark.parametrize("cross_rope", [False, True])
def test_keys_and_values(cross_rope: bool) -> None:
    """As near to float64 as the plain layers are, or up to 1.5 times as far."""
    built, exact = network(cross_rope=cross_rope), network(cross_rope=cross_rope).double()
    reader = FusedReader(built)
    for length in (1, 2, 17, 40):
        tokens = text(length, length)
        truth, known = plain(exact, tokens), plain(built, tokens)
        own = torch.stack(reader.read(tokens))
        assert own.shape == truth.shape
        assert (own - truth).norm() < 1.5 * (known - truth).norm() + 4 * torch.finfo().eps * truth.norm()


@torch.inference_mode()
def test_texts_of_one_length_are_not_mixed_up() -> None:
    """The first is computed, the second captured, others are replayed: each is as by itself, to the bit."""
    built = network()
    texts = [text(length, seed) for seed, length in enumerate((9, 9, 9, 12, 9, 12, 12, 9))]
    alone = [torch.stack(FusedReader(built).read(one)) for one in texts]
    reader = FusedReader(built)
    found = [torch.stack(reader.read(one)) for one in texts]
    for one, other in zip(found, alone, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert not torch.equal(found[0], found[1])


@torch.inference_mode()
def test_weights_are_stored_once() -> None:
    built: Any = network()
    before = {name: one.clone() for name, one in built.state_dict().items()}
    reader = FusedReader(built)
    attention = built.model.encoder.layers[0].self_attention
    assert (
        attention.k_proj.weight.untyped_storage().data_ptr()
        == reader.layers[0].qkv.untyped_storage().data_ptr()
    )
    for name, one in built.state_dict().items():
        torch.testing.assert_close(one, before[name], rtol=0, atol=0)

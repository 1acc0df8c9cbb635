"""Texts' keys and values on kernels against the plain layers, of each by itself and of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.torch_ref.cuda.dia.kernel_dia import network
from tests.torch_ref.cuda.marks import DEVICE, kernel_marks
from torch_ref.cuda.dia.fused import DecoderMemory
from torch_ref.cuda.dia.reading import FusedReader
from torch_ref.cuda.prompts import PromptReader, PromptRows
from torch_ref.host import Host

pytestmark = kernel_marks()


def text(length: int, seed: int) -> torch.Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.randint(1, 200, (length,), generator=random).int().to(DEVICE)


def plain(built: Any, tokens: torch.Tensor) -> torch.Tensor:
    """Keys and values of every layer, (2, L, K, S, E)."""
    source = built.read([tokens])
    return torch.stack([torch.cat(source.keys), torch.cat(source.values)])


def read(built: Any, texts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Keys and values of texts that are read together, (2, L, K, S, E) of each. All else in
    their memory stays zeros.
    """
    memory = DecoderMemory.empty(built, len(texts) + 1, 10, 50, guided=False)
    reader = FusedReader(built)
    prompts = PromptReader(reader, memory, Host(built.logits_dense))
    firsts = [sum(map(len, texts[:place])) for place in range(len(texts))]
    prompts(
        F.embedding(torch.cat([*texts]), reader.table),
        [
            PromptRows(first, len(one), place)
            for place, (first, one) in enumerate(zip(firsts, texts, strict=True))
        ],
    )
    found, held = list[torch.Tensor](), torch.stack((memory.source_keys, memory.source_values))
    for place, one in enumerate(texts):
        part = held[:, :, place, :, : len(one)]
        found.append(part.clone())
        part.zero_()
    assert not held.any()
    return found


@torch.inference_mode()
@pytest.mark.parametrize("cross_rope", [False, True])
def test_keys_and_values(cross_rope: bool) -> None:
    """Of texts of several lengths: as near to float64 as the plain layers are, or up to 1.5 times as far."""
    built, exact = network(cross_rope=cross_rope), network(cross_rope=cross_rope).double()
    texts = [text(length, length) for length in (1, 2, 17, 40, 9)]
    for tokens, own in zip(texts, read(built, texts), strict=True):
        truth, known = plain(exact, tokens), plain(built, tokens)
        assert own.shape == truth.shape
        assert (own - truth).norm() < 1.5 * (known - truth).norm() + 4 * torch.finfo().eps * truth.norm()


@torch.inference_mode()
def test_texts_that_are_read_together_are_not_mixed_up() -> None:
    """Each is as by itself."""
    built = network()
    texts = [text(length, seed) for seed, length in enumerate((9, 9, 12, 16, 1))]
    for one, own in zip(texts, read(built, texts), strict=True):
        [alone] = read(built, [one])
        torch.testing.assert_close(own, alone)


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

"""The network's layers in place of the diffusion's kernels, for captured steps without Triton."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from torch import Tensor

from tests.torch_ref.cuda.eager import eager
from torch_ref.cuda.mars5 import reverse
from torch_ref.mars5.residual_transformer import Mars5Source, ResidualTransformer


class Reading:
    """In place of fused.Reading: nothing is encoded ahead."""

    def __init__(self, source: Mars5Source):
        self.source = source

    @classmethod
    def of(cls, network: ResidualTransformer, source: Mars5Source) -> Reading:
        return cls(source)


class LayersTransformer:
    """In place of FusedTransformer."""

    def __init__(self, network: ResidualTransformer, readings: Sequence[Reading]):
        self.network, [self.reading] = network, readings

    def logits(self, codes: Tensor, t: Tensor, firsts: Sequence[int], book: int) -> Tensor:
        [first] = firsts
        hidden = self.network.hidden(codes[None], self.reading.source, t)[:, first:]
        return self.network.head(hidden, range(book, codes.shape[1]))


@pytest.fixture
def on_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let captured steps compute logits by the layers; draws of two numbers per cell need the kernel."""
    monkeypatch.setattr(reverse, "capture", eager)
    monkeypatch.setattr(reverse, "Reading", Reading)
    monkeypatch.setattr(reverse, "FusedTransformer", LayersTransformer)

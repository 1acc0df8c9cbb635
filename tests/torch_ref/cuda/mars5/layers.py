"""The network's layers in place of the diffusion's kernels, for captured steps without Triton."""

from __future__ import annotations

import pytest
from torch import Tensor

from tests.torch_ref.cuda.eager import eager
from torch_ref.cuda.mars5 import reverse
from torch_ref.mars5.residual_transformer import Mars5Source, ResidualTransformer


class LayersTransformer:
    """In place of FusedTransformer."""

    def __init__(self, network: ResidualTransformer, source: Mars5Source):
        self.network, self.source = network, source

    def logits(self, codes: Tensor, t: Tensor, first: int, book: int) -> Tensor:
        hidden = self.network.hidden(codes[None], self.source, t)[:, first:]
        return self.network.head(hidden, range(book, codes.shape[1]))


@pytest.fixture
def on_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let captured steps compute logits by the layers; draws of two numbers per cell need the kernel."""
    monkeypatch.setattr(reverse, "capture", eager)
    monkeypatch.setattr(reverse, "FusedTransformer", LayersTransformer)

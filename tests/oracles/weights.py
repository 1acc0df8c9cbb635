"""Random weights that make every part of a network matter."""

import math

import torch
from torch import nn


@torch.no_grad()
def randomise(network: nn.Module, seed: int) -> None:
    """Dense N(0, 1/fan-in), embeddings N(0, 0.6²), norms and snakes U(0.5, 1.5), biases N(0, 0.1²)."""
    generator = torch.Generator().manual_seed(seed)
    embeddings = {id(module.weight) for module in network.modules() if isinstance(module, nn.Embedding)}
    for name, weight in network.named_parameters():
        if name.endswith(".alpha") or "norm" in name:
            weight.uniform_(0.5, 1.5, generator=generator)
        elif weight.dim() == 1:
            weight.normal_(0, 0.1, generator=generator)
        elif id(weight) in embeddings:
            weight.normal_(0, 0.6, generator=generator)
        else:
            taps = weight.shape[0] * weight.shape[2] // 2 if ".conv_t" in name else weight[0].numel()
            weight.normal_(0, 1 / math.sqrt(taps), generator=generator)

"""Residual vector quantisation while it is trained: gradients straight through, entries as moving averages.

Source: descriptinc/descript-audio-codec dac/nn/quantize.py (MIT) for the search; the moving averages are
those of van den Oord et al., "Neural Discrete Representation Learning", 2017, the restarts those of
Dhariwal et al., "Jukebox", 2020.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ref.codecs.dac import Dac, ResidualVectorQuantizer, VectorQuantizer

RARE = 0.1  # of the mean use: below it an entry is restarted
LLOYD = 10  # iterations that settle the first entries


class Quantized(NamedTuple):
    """latents: (B, C, T).  commitment: distance to the entries, summed over the codebooks.  encodings:
    (Q, B·T, E) what was looked up.  tallies: (Q, K, E + 1) sum of the encodings and their number, by entry.
    """

    latents: Tensor
    commitment: Tensor
    encodings: Tensor
    tallies: Tensor


def straight_through(
    quantizer: ResidualVectorQuantizer, latents: Tensor, strength: Tensor | float = 1.0
) -> Quantized:
    """What the decoder gets, with the encoder's gradient. strength: 1 to quantise, 0 to pass encodings on."""
    rest, total, commitment = latents, torch.zeros_like(latents), latents.new_zeros(())
    encoded, tallies = [], []
    for one in cast(list[VectorQuantizer], quantizer.quantizers):
        encodings = one.in_proj(rest)
        with torch.no_grad():
            codes = one.encode(rest)
            entries = one.codebook(codes).transpose(1, 2)
            looked_up = encodings.transpose(1, 2).flatten(0, 1).float()
            tallies.append(tally(looked_up, codes.flatten(), one.codebook.num_embeddings))
            encoded.append(looked_up)
        commitment = commitment + F.mse_loss(encodings, entries)
        made = one.out_proj(encodings + strength * (entries - encodings).detach())
        total, rest = total + made, rest - made
    return Quantized(total, strength * commitment, torch.stack(encoded), torch.stack(tallies))


def tally(encodings: Tensor, codes: Tensor, size: int) -> Tensor:
    """(N, E), (N,) → (K, E + 1)."""
    counted = F.pad(encodings, (0, 1), value=1.0)
    return counted.new_zeros(size, counted.shape[1]).index_add_(0, codes.long(), counted)


class Entries:
    """All codebooks' entries as moving averages of what they stand for."""

    def __init__(self, quantizer: ResidualVectorQuantizer, decay: float):
        self.weights = [one.codebook.weight.data for one in cast(list[VectorQuantizer], quantizer.quantizers)]
        self.decay = decay
        self.tallies = torch.stack([F.pad(weight, (0, 1), value=1.0) for weight in self.weights])

    def follow(self, tallies: Tensor) -> None:
        """One step towards a batch's tallies."""
        self.tallies.lerp_(tallies, 1 - self.decay)
        counts = self.tallies[..., -1:]
        means = self.tallies[..., :-1] / counts.clamp_min(1e-6)
        for weight, mean, count in zip(self.weights, means, counts, strict=True):
            weight.copy_(torch.where(count > 1e-3, mean, weight))

    def restart(self, encodings: Tensor) -> Tensor:
        """Put random encodings (Q, N, E) in the place of entries hardly used. → those in use, (Q,)."""
        counts = self.tallies[..., -1:]
        mean = counts.mean(1, keepdim=True)
        rare = counts < RARE * mean
        places = torch.randint(encodings.shape[1], (rare.shape[1],), device=encodings.device)
        fresh = F.pad(encodings[:, places], (0, 1), value=1.0) * mean
        self.tallies.copy_(torch.where(rare, fresh, self.tallies))
        for weight, drawn, one in zip(self.weights, encodings[:, places], rare, strict=True):
            weight.copy_(torch.where(one, drawn, weight))
        return (~rare).sum((1, 2))


@torch.no_grad()
def settle(dac: Dac, samples: Tensor) -> None:
    """Entries for the first time: encodings of `samples` (B, L), by spherical k-means, book by book.

    Each projection is moved and scaled so that its encodings are centred, of unit size, and mean what they
    did.
    """
    rest = dac.encoder(samples[:, None])
    for one in cast(list[VectorQuantizer], dac.quantizer.quantizers):
        encodings = one.in_proj(rest).transpose(1, 2).flatten(0, 1)
        middle = encodings.mean(0)
        size = (encodings - middle).std().clamp_min(1e-6)
        assert one.in_proj.bias is not None
        assert one.out_proj.bias is not None
        one.out_proj.bias += one.out_proj.weight[:, :, 0] @ middle
        one.out_proj.weight *= size
        one.in_proj.bias -= middle
        one.in_proj.bias /= size
        one.in_proj.weight /= size
        encodings = (encodings - middle) / size
        entries = one.codebook.weight
        entries.copy_(encodings[torch.randperm(len(encodings), device=entries.device)[: len(entries)]])
        for _ in range(LLOYD):
            tallies = tally(encodings, one.encode(rest).flatten(), len(entries))
            used = tallies[:, -1:] > 0
            entries.copy_(torch.where(used, tallies[:, :-1] / tallies[:, -1:].clamp_min(1), entries))
        rest = rest - one.decode(one.encode(rest))

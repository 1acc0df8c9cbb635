"""Residual vector quantisation while it is trained: gradients straight through, no entry left unused.

Source: descriptinc/descript-audio-codec dac/nn/quantize.py (MIT); the restarts are those of Dhariwal et al.,
"Jukebox", 2020.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ref.codecs.dac import Dac, ResidualVectorQuantizer, VectorQuantizer

RARE = 0.1  # of the mean use: below it an entry is restarted


class Quantized(NamedTuple):
    """latents: (B, C, T).  codebook, commitment: scalars, summed over the codebooks."""

    latents: Tensor
    codebook: Tensor
    commitment: Tensor


def straight_through(quantizer: ResidualVectorQuantizer, latents: Tensor) -> Quantized:
    """What the decoder gets, with the encoder's gradient, and the two distances to the entries."""
    rest, total = latents, torch.zeros_like(latents)
    codebook = commitment = latents.new_zeros(())
    for one in cast(list[VectorQuantizer], quantizer.quantizers):
        with torch.no_grad():
            codes = one.encode(rest)
        encodings, entries = one.in_proj(rest), one.codebook(codes).transpose(1, 2)
        codebook = codebook + F.mse_loss(entries, encodings.detach())
        commitment = commitment + F.mse_loss(encodings, entries.detach())
        made = one.out_proj(encodings + (entries - encodings).detach())
        total, rest = total + made, rest - made
    return Quantized(total, codebook, commitment)


@torch.no_grad()
def restart(dac: Dac, samples: Tensor, *, everything: bool = False) -> list[int]:
    """Put encodings of `samples` (B, L) in the place of entries that they hardly use, codebook by codebook.

    everything: every entry, to begin with. Returns the number of entries in good use, per codebook.
    """
    rest, used = dac.encoder(samples[:, None]), []
    for one in cast(list[VectorQuantizer], dac.quantizer.quantizers):
        entries = one.codebook.weight
        counts = torch.bincount(one.encode(rest).flatten(), minlength=len(entries))
        rare = counts < RARE * counts.float().mean()
        used.append(len(entries) - int(rare.sum()))
        rare |= everything
        encodings = one.in_proj(rest).transpose(1, 2).flatten(0, 1)
        drawn = torch.randint(len(encodings), (int(rare.sum()),), device=entries.device)
        entries[rare] = encodings[drawn]
        rest = rest - one.decode(one.encode(rest))
    return used

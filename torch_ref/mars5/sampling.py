"""Drawing MARS5's next id from logits, all of it on the device.

Upstream: Camb-ai/MARS5-TTS@84697c8 (AGPL-3.0); written from a description, no code of it was used.
Differs from upstream: which of several equal ids a nucleus cut keeps does not hang on a sort's order (all are
kept); ids are drawn by the inverse of the cumulative distribution, from one number each.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tts_core.mars5.options import Mars5Options
from tts_core.mars5.sampling import TYPICAL_OFF


def occurrences(ids: Tensor, vocab_size: int) -> Tensor:
    """How often each id is among `ids`; `vocab_size` itself stands where none is. (B, N) → (B, V) float32."""
    counts = torch.zeros(ids.shape[0], vocab_size + 1, device=ids.device)
    return counts.scatter_add_(1, ids.long(), torch.ones_like(ids, dtype=counts.dtype))[:, :vocab_size]


def penalize_repeats(logits: Tensor, counts: Tensor, options: Mars5Options) -> Tensor:
    """Lower ids that occurred: by their number, and once more for being there. (B, V) each."""
    return logits - counts * options.freq_penalty - (counts > 0) * options.presence_penalty


def forbid_text(logits: Tensor, lowest: int) -> Tensor:
    """-inf below id `lowest`. (B, V)."""
    return logits.masked_fill(torch.arange(logits.shape[-1], device=logits.device) < lowest, -torch.inf)


def penalize_end(logits: Tensor, end: int, penalty: Tensor) -> Tensor:
    """Lower the logit of id `end`. (B, V); penalty: one number."""
    ids = torch.arange(logits.shape[-1], device=logits.device)
    return logits - (ids == end) * penalty.to(logits.dtype)


def keep_top(logits: Tensor, top_k: int, top_p: float) -> Tensor:
    """-inf where an id is not among the `top_k`, or the more probable ones hold more than `top_p`. (B, V).

    One sort serves both. Ties at an edge stay.
    """
    limited = 0 < top_k < logits.shape[-1]
    if not limited and top_p >= 1:
        return logits
    falling = logits.sort(dim=-1, descending=True).values
    edge = falling[..., top_k - 1 : top_k] if limited else falling[..., -1:]
    if top_p < 1:
        held = falling.masked_fill(falling < edge, -torch.inf)
        sums = held.softmax(dim=-1).cumsum(dim=-1)
        beyond = torch.cat((torch.zeros_like(sums[..., :1]), sums[..., :-1]), dim=-1) > top_p
        edge = torch.maximum(edge, held.masked_fill(beyond, torch.inf).amin(dim=-1, keepdim=True))
    return logits.masked_fill(logits < edge, -torch.inf)


def keep_typical(logits: Tensor, mass: float) -> Tensor:
    """-inf where ids whose surprise is nearer to the expected one already hold `mass`. (B, V)."""
    if mass > TYPICAL_OFF:
        return logits
    surprise = -logits.log_softmax(dim=-1)
    probs = torch.exp(-surprise)
    expected = torch.where(probs > 0, probs * surprise, 0.0).sum(dim=-1, keepdim=True)
    distance = (surprise - expected).abs()
    rising, order = distance.sort(dim=-1)
    enough = probs.gather(-1, order).cumsum(dim=-1) >= mass
    edge = rising.masked_fill(~enough, torch.inf).amin(dim=-1, keepdim=True)
    return logits.masked_fill(distance > edge, -torch.inf)


def log_probabilities(
    logits: Tensor, counts: Tensor, penalty: Tensor, options: Mars5Options, *, lowest: int, end: int
) -> Tensor:
    """The logarithms of what an id is drawn with. (B, V) float32 → same.

    counts: occurrences among the last ids; zeros where nothing is held against repeats yet.
    penalty: one number, what the end loses now. lowest: the first id that may be drawn. end: ends speech.
    """
    logits = penalize_repeats(logits, counts, options)
    logits = forbid_text(logits, lowest)
    logits = penalize_end(logits, end, penalty)
    if options.temperature == 0:
        return keep_top(logits, 1, 1.0).log_softmax(dim=-1)
    logits = logits / options.temperature
    logits = keep_top(logits, options.top_k, options.top_p)
    return keep_typical(logits, options.typical_p).log_softmax(dim=-1)


def draw(log_probs: Tensor, uniform: Tensor) -> Tensor:
    """The first id up to which probabilities hold more than `uniform`. (B, V), one number → (B,) int64."""
    probs = log_probs.exp()
    sums = probs.cumsum(dim=-1)
    possible = probs > 0  # a parallel sum may fall by a rounding where nothing is added
    places = torch.arange(probs.shape[-1], device=probs.device)
    beyond = possible & (sums / sums[..., -1:] > uniform)
    first = torch.where(beyond, places, probs.shape[-1]).amin(dim=-1)
    return torch.minimum(first, torch.where(possible, places, 0).amax(dim=-1))

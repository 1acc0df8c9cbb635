"""Sampling of MARS5's next id from logits, entirely on the device.

Upstream: Camb-ai/MARS5-TTS@84697c8 (AGPL-3.0); written from a description, none of its code was used.
Differs from upstream: a nucleus cut keeps all of several equal ids, independent of the order of a sort; ids
are drawn with the inverse cumulative distribution, from one number each.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tts_core.mars5.options import Mars5Options
from tts_core.mars5.sampling import TYPICAL_OFF, Mars5Numbers

MARK = -1  # replaces an id drawn from NaN or infinite logits


def occurrences(ids: Tensor, vocab_size: int) -> Tensor:
    """Count each id in `ids`; the value `vocab_size` marks an empty place. (B, N) → (B, V) float32."""
    counts = torch.zeros(ids.shape[0], vocab_size + 1, device=ids.device)
    return counts.scatter_add_(1, ids.long(), torch.ones_like(ids, dtype=counts.dtype))[:, :vocab_size]


def penalize_repeats(logits: Tensor, counts: Tensor, options: Mars5Numbers | Mars5Options) -> Tensor:
    """Lower the logits of ids that occurred: by count, plus a constant for presence. (B, V) each."""
    return logits - counts * options.freq_penalty - (counts > 0) * options.presence_penalty


def forbid_text(logits: Tensor, lowest: int) -> Tensor:
    """Set logits below id `lowest` to -inf. (B, V)."""
    return logits.masked_fill(torch.arange(logits.shape[-1], device=logits.device) < lowest, -torch.inf)


def penalize_end(logits: Tensor, end: int, penalty: Tensor) -> Tensor:
    """Lower the logit of id `end`. (B, V); penalty: one number, or one per row, (B, 1)."""
    ids = torch.arange(logits.shape[-1], device=logits.device)
    return logits - (ids == end) * penalty.to(logits.dtype)


def keep_top(logits: Tensor, top_k: int, top_p: float) -> Tensor:
    """Set to -inf ids outside the `top_k`, or whose more probable ids sum to more than `top_p`. (B, V).

    One sort serves both. Ties at a cut stay.
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
    """Set to -inf ids once those with surprise nearer to the expected one sum to `mass`. (B, V)."""
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
    logits: Tensor,
    counts: Tensor,
    penalty: Tensor,
    options: Mars5Numbers | Mars5Options,
    *,
    lowest: int,
    end: int,
) -> Tensor:
    """Compute the log-probabilities that an id is drawn from. (B, V) float32 → same.

    counts: occurrences among the last ids; zeros while repeats have no penalty yet.
    penalty: lowers the end's logit, one number or (B, 1).
    lowest: first id that may be drawn.
    end: id of the end.
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
    """Draw the first id whose cumulative probability exceeds `uniform`. (B, V), () or (B, 1) → (B,) int64."""
    probs = log_probs.exp()
    sums = probs.cumsum(dim=-1)
    possible = probs > 0  # rounding may lower a parallel sum where nothing is added
    places = torch.arange(probs.shape[-1], device=probs.device)
    beyond = possible & (sums / sums[..., -1:] > uniform)
    first = torch.where(beyond, places, probs.shape[-1]).amin(dim=-1)
    return torch.minimum(first, torch.where(possible, places, 0).amax(dim=-1))


def draw_ids(
    logits: Tensor,
    seen: Tensor,
    penalty: Tensor,
    uniform: Tensor,
    options: Mars5Numbers | Mars5Options,
    *,
    lowest: int,
    end: int,
) -> Tensor:
    """Draw an id from each row of logits, (B, V) → (B,); -1 where they are not all finite.

    seen: (B, N) ids whose repetition is penalized.  penalty, uniform: one number, or one per row, (B, 1).
    """
    counts = occurrences(seen, logits.shape[-1])
    scores = log_probabilities(logits, counts, penalty, options, lowest=lowest, end=end)
    return draw(scores, uniform).masked_fill(~logits.isfinite().all(dim=-1), MARK)

"""Draws of ids from rows of logits, for all models.

A model's `Sampler` states which rules apply, in which order. Rows of different settings are drawn together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_ref.limits.remedies import first_largest
from tts_core.nn.sampling import Sampler


class Draw(NamedTuple):
    """Rows of scores on their way through the rules of a sampler, each a method.

    scores: (B, ..., V), at first the conditional logits.
    logits: (B, ..., V) each, of the rows of guidance.
    table: columns of settings by name, (B, 1, ...) each.
    allowed: (..., V) bool, ids that may be drawn.
    counts: (B, ..., V), how often each id was drawn among the last ones.
    step: (B, 1, ...), ids that were drawn so far.
    penalty: (B, 1, ...), of the end.
    end: the id that ends speech.
    scale, most: of the sampler.
    guided: (B, ..., V), logits computed by guidance.
    """

    scores: Tensor
    logits: Sequence[Tensor]
    table: Any
    allowed: Tensor | None = None
    counts: Tensor | None = None
    step: Tensor | None = None
    penalty: Tensor | None = None
    end: int = -1
    scale: float = 1.0
    most: int = 0
    guided: Tensor | None = None

    def guidance(self) -> Draw:
        """Compute classifier-free guidance centered on the conditional logits.

        Source: arXiv:2207.12598; nari-labs/dia@876125e.
        """
        cond, uncond = self.logits[0], self.logits[-1]
        return self._replace(guided=cond + self.table.cfg_scale * (cond - uncond))

    def nearer_guidance(self) -> Draw:
        """Compute guidance centered on the unconditional logits, from the nearer end.

        Source: nari-labs/dia2@8687268, where it is torch.lerp.
        """
        cond, uncond = self.logits[0], self.logits[-1]
        start = torch.where(self.table.from_conditional > 0, cond, uncond)
        return self._replace(guided=start + self.table.factor * (cond - uncond))

    def three_way_guidance(self) -> Draw:
        """Take the logits that guidance by speaker and by text computes from one to three rows.

        Source: metavoiceio/metavoice-src, July 2024.
        """
        guided = self.logits[0]
        if len(self.logits) > 1:
            guided = self.table.full * guided + self.table.speaker * self.logits[1]
        if len(self.logits) > 2:
            guided = guided + self.table.textual * self.logits[2]
        return self._becomes(guided)

    def guided_logits(self) -> Draw:
        """Take the logits that guidance computed. Source: nari-labs/dia@2811af1."""
        assert self.guided is not None
        return self._becomes(self.guided)

    def allowed_ids(self) -> Draw:
        """Forbid all ids but `allowed`."""
        assert self.allowed is not None
        return self._keep(self.allowed)

    def guided_top_k(self) -> Draw:
        """Keep the `top_k` best ids by guidance, with their own logits. Source: nari-labs/dia@876125e."""
        return self._candidates(self.table.top_k)

    def cfg_filter_k(self) -> Draw:
        """Keep the `cfg_filter_k` best ids by guidance. Source: nari-labs/dia2@8687268."""
        return self._candidates(self.table.cfg_filter_k)

    def repetition_penalty(self) -> Draw:
        """Make ids that were drawn less likely. Source: arXiv:1909.05858, as in transformers 4.57.3."""
        assert self.counts is not None
        x, penalty = self.scores, self.table.repetition_penalty
        return self._becomes(torch.where(self.counts > 0, torch.where(x < 0, x * penalty, x / penalty), x))

    def freq_penalty(self) -> Draw:
        """Lower ids by how often they were drawn. Source: frequency_penalty of OpenAI's API."""
        assert self.counts is not None
        return self._becomes(self.scores - self.counts * self.table.freq_penalty)

    def presence_penalty(self) -> Draw:
        """Lower ids that were drawn. Source: presence_penalty of OpenAI's API."""
        assert self.counts is not None
        return self._becomes(self.scores - (self.counts > 0) * self.table.presence_penalty)

    def min_tokens(self) -> Draw:
        """Forbid the end before this many ids. Source: min_new_tokens of transformers 4.57.3."""
        assert self.step is not None
        return self._keep((self.step >= self.table.min_tokens) | ~self._is_end())

    def end_penalty(self) -> Draw:
        """Lower the end by the step's `penalty`. Source: a description of Camb-ai/MARS5-TTS@84697c8."""
        assert self.penalty is not None
        return self._becomes(self.scores - self._is_end() * self.penalty.to(self.scores.dtype))

    def end_scale(self) -> Draw:
        """Scale the end by `scale`. Source: nari-labs/dia@2811af1."""
        return self._becomes(torch.where(self._is_end(), self.scores * self.scale, self.scores))

    def end_exactly_if_best(self) -> Draw:
        """Make the end certain where it is the best id, else forbid it. Source: nari-labs/dia@876125e."""
        ends = first_largest(self.scores)[..., None] == self.end
        return self._keep(ends == self._is_end())

    def end_only_if_best(self) -> Draw:
        """Forbid the end where it is not the best id. Source: nari-labs/dia@2811af1."""
        ends = first_largest(self.scores)[..., None] == self.end
        return self._keep(ends | ~self._is_end())

    def temperature(self) -> Draw:
        """Divide by the temperature; 0 divides by 1, and `gumbel` then takes the best id."""
        own = self.table.temperature
        return self._becomes(self.scores / torch.where(own > 0, own, 1))

    def top_k(self) -> Draw:
        """Keep the `top_k` largest, and ties with the last. Source: arXiv:1805.04833."""
        return self._keep(self.scores >= self._kth_largest(self.scores, self.table.top_k))

    def first_top_k(self) -> Draw:
        """Keep the `first_top_k` largest; of ties at the edge the first. Source: nari-labs/dia2@8687268."""
        k = self.table.first_top_k
        edge = self._kth_largest(self.scores, k)
        above, ties = self.scores > edge, self.scores == edge
        left = k - above.sum(dim=-1, keepdim=True)
        return self._keep(above | (ties & (ties.int().cumsum(dim=-1) <= left)))

    def top_p(self) -> Draw:
        """Drop ids whose more probable ones sum to more than `top_p`; ties at the edge stay.

        Source: arXiv:1904.09751.
        """
        rising, above = self._sums()
        beyond = (above > self.table.top_p) & (self.table.top_p < 1)
        edge = rising.masked_fill(beyond, torch.inf).amin(dim=-1, keepdim=True)
        return self._keep(self.scores >= edge)

    def first_top_p(self) -> Draw:
        """Apply top-p with `first_top_p`; of ties at the edge the first stay.

        Source: metavoiceio/metavoice-src, its slow inference.
        """
        rising, above = self._sums()
        kept = above <= self.table.first_top_p
        return self._keep(at_the_edge(self.scores, rising, kept, last=False))

    def rising_top_p(self) -> Draw:
        """From the least probable id up, drop ids while their sum is at most `rising_top_p`, 1 - top-p.

        The best id stays; of ties at the edge the last.
        Source: transformers 4.57.3; metavoiceio/metavoice-src, its fast inference.
        """
        rising = self.scores.sort(dim=-1).values
        best = torch.arange(rising.shape[-1], device=rising.device) == rising.shape[-1] - 1
        kept = (rising.softmax(dim=-1).cumsum(dim=-1) > self.table.rising_top_p) | best
        return self._keep(at_the_edge(self.scores, rising, kept, last=True))

    def typical_p(self) -> Draw:
        """Drop ids once those with surprise nearer to the expected one sum to `typical_p`.

        Source: arXiv:2202.00666.
        """
        mass = self.table.typical_p
        surprise = -self.scores.log_softmax(dim=-1)
        probs = torch.exp(-surprise)
        expected = torch.where(probs > 0, probs * surprise, 0.0).sum(dim=-1, keepdim=True)
        distance = (surprise - expected).abs()
        rising, order = distance.sort(dim=-1)
        enough = (probs.gather(-1, order).cumsum(dim=-1) >= mass) & (mass < 1)
        return self._keep(distance <= rising.masked_fill(~enough, torch.inf).amin(dim=-1, keepdim=True))

    def _becomes(self, scores: Tensor) -> Draw:
        return self._replace(scores=scores)

    def _keep(self, kept: Tensor) -> Draw:
        return self._becomes(self.scores.masked_fill(~kept, -torch.inf))

    def _is_end(self) -> Tensor:
        return torch.arange(self.scores.shape[-1], device=self.scores.device) == self.end

    def _candidates(self, k: Tensor) -> Draw:
        assert self.guided is not None
        kept = self._keep(self.guided >= self._kth_largest(self.guided, k))
        if self.allowed is None:
            return kept
        # if guidance picks only forbidden ids, upstream fails; here every allowed id is then a candidate
        lost = kept.scores.isneginf().all(dim=-1, keepdim=True)
        return self._becomes(torch.where(lost, self.scores, kept.scores))

    def _kth_largest(self, x: Tensor, k: Tensor) -> Tensor:
        """Find the k-th largest of each row; -inf where k keeps all. (..., V), (B, 1, ...) → (..., 1)."""
        size = x.shape[-1]
        falling = x.topk(min(self.most or size, size), dim=-1).values
        rank = (k.long() - 1).clamp(0, falling.shape[-1] - 1).expand(*x.shape[:-1], 1)
        return falling.gather(-1, rank).masked_fill((k <= 0) | (k >= size), -torch.inf)

    def _sums(self) -> tuple[Tensor, Tensor]:
        """Return the scores from the smallest up, and the sum of the probabilities above each."""
        rising = self.scores.sort(dim=-1).values
        probs = rising.softmax(dim=-1)
        return rising, probs.flip(-1).cumsum(dim=-1).flip(-1) - probs


def draw_rows(
    logits: Sequence[Tensor], table: Any, uniform: Tensor | None, sampler: Sampler, **inputs: Any
) -> Tensor:
    """Draw an id from each row. (B, ..., V) logits of each row of guidance → (B, ...) int64, < V.

    table: settings by name, from `sampler.named`, with the axes of an id's row.
    uniform: (B, ..., V), or (B, ..., 1) for the inverse distribution; None takes the best id of each row.
    inputs: fields of Draw from `allowed` to `end`, those that the sampler's rules need.
    """
    draw = score_rows(logits, table, sampler, **inputs)
    if uniform is None:
        ids = first_largest(draw.scores)
    else:
        ids = {"gumbel": gumbel, "inverse": inverse}[sampler.pick](draw, uniform)
    return ids.clamp(max=logits[0].shape[-1] - 1)  # where logits are NaN


def score_rows(logits: Sequence[Tensor], table: Any, sampler: Sampler, **inputs: Any) -> Draw:
    """Apply the rules of a sampler: ids are drawn by the softmax of `scores`. Arguments as in `draw_rows`."""
    draw = Draw(logits[0], logits, table, scale=sampler.end_scale, most=sampler.most, **inputs)
    for rule in sampler.rules:
        draw = getattr(draw, rule)()
    return draw


def gumbel(draw: Draw, uniform: Tensor) -> Tensor:
    """Draw an id by the Gumbel maximum; at temperature 0 take the best. Source: arXiv:1611.01144."""
    noise = torch.log(-torch.log(uniform))
    return first_largest(draw.scores - torch.where(draw.table.temperature > 0, noise, 0.0))


def inverse(draw: Draw, uniform: Tensor) -> Tensor:
    """Draw the first id whose cumulative probability exceeds a number. uniform: (B, ..., 1)."""
    probs = draw.scores.log_softmax(dim=-1).exp()
    sums = probs.cumsum(dim=-1)
    possible = probs > 0  # rounding may lower a parallel sum where nothing is added
    indices = torch.arange(probs.shape[-1], device=probs.device)
    beyond = possible & (sums / sums[..., -1:] > uniform)
    first = torch.where(beyond, indices, probs.shape[-1]).amin(dim=-1)
    return torch.minimum(first, torch.where(possible, indices, 0).amax(dim=-1))


def occurrences(ids: Tensor, vocab_size: int) -> Tensor:
    """Count each id in `ids`. (B, N) → (B, V) float32."""
    counts = torch.zeros(len(ids), vocab_size, device=ids.device)
    return counts.scatter_add_(1, ids.long(), torch.ones_like(ids, dtype=counts.dtype))


def at_the_edge(x: Tensor, ordered: Tensor, kept: Tensor, *, last: bool) -> Tensor:
    """Map `kept`, a selection of the sorted values `ordered`, back to `x` as a stable sort would, on any
    backend. (..., V) each → (..., V) bool.

    last: of equal values at the cut keep the last ones, else the first ones.
    """
    edge = ordered.masked_fill(~kept, torch.inf).amin(dim=-1, keepdim=True)
    above, equal = x > edge, (x == edge).to(x.dtype)
    ties = kept.to(x.dtype).sum(dim=-1, keepdim=True)
    ties = ties - above.to(x.dtype).sum(dim=-1, keepdim=True)
    rank = equal.cumsum(dim=-1)  # rank among equal values, from 1
    if last:
        rank = equal.sum(dim=-1, keepdim=True) + 1 - rank
    return above | ((equal > 0) & (rank <= ties))

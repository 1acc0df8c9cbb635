"""Draws of ids from rows of logits, for all models.

A model's `Sampler` states which rules apply, in which order. Rows of different settings are drawn together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np

from mlx_port.kernels.source import on_gpu
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

    scores: mx.array
    logits: Sequence[mx.array]
    table: Any
    allowed: mx.array | None = None
    counts: mx.array | None = None
    step: mx.array | None = None
    penalty: mx.array | None = None
    end: int = -1
    scale: float = 1.0
    most: int = 0
    guided: mx.array | None = None

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
        start = mx.where(self.table.from_conditional > 0, cond, uncond)
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
        return self._becomes(mx.where(self.counts > 0, mx.where(x < 0, x * penalty, x / penalty), x))

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
        return self._becomes(self.scores - self._is_end() * self.penalty)

    def end_scale(self) -> Draw:
        """Scale the end by `scale`. Source: nari-labs/dia@2811af1."""
        return self._becomes(mx.where(self._is_end(), self.scores * self.scale, self.scores))

    def end_exactly_if_best(self) -> Draw:
        """Make the end certain where it is the best id, else forbid it. Source: nari-labs/dia@876125e."""
        ends = mx.argmax(self.scores, axis=-1, keepdims=True) == self.end
        return self._keep(ends == self._is_end())

    def end_only_if_best(self) -> Draw:
        """Forbid the end where it is not the best id. Source: nari-labs/dia@2811af1."""
        ends = mx.argmax(self.scores, axis=-1, keepdims=True) == self.end
        return self._keep(ends | ~self._is_end())

    def temperature(self) -> Draw:
        """Divide by the temperature; 0 divides by 1, and `gumbel` then takes the best id."""
        own = self.table.temperature  # a comparison like the one in `gumbel` would be a launch of its own
        return self._becomes(self.scores / mx.where(own == 0, 1, own))

    def top_k(self) -> Draw:
        """Keep the `top_k` largest, and ties with the last. Source: arXiv:1805.04833."""
        return self._keep(self.scores >= self._kth_largest(self.scores, self.table.top_k))

    def first_top_k(self) -> Draw:
        """Keep the `first_top_k` largest; of ties at the edge the first. Source: nari-labs/dia2@8687268."""
        k, size = self.table.first_top_k, self.scores.shape[-1]
        edge = self._kth_largest(self.scores, k)
        more = size + 1  # an id above the edge counts as more than all ties, so that one sum counts both
        marks = mx.where(self.scores > edge, more, (self.scores == edge).astype(mx.int32))
        sums = mx.cumsum(marks, axis=-1)
        ties = mx.where(k > 0, k, size) - sums[..., -1:] // more
        return self._keep((marks == more) | ((marks == 1) & (sums % more <= ties)))

    def top_p(self) -> Draw:
        """Drop ids whose more probable ones sum to more than `top_p`; ties at the edge stay.

        Source: arXiv:1904.09751.
        """
        rising, above = self._sums()
        beyond = (above > self.table.top_p) & (self.table.top_p < 1)
        edge = mx.where(beyond, mx.inf, rising).min(axis=-1, keepdims=True)
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
        rising = mx.sort(self.scores, axis=-1)
        best = _counted(rising.shape[-1]) == rising.shape[-1] - 1
        kept = (mx.cumsum(mx.softmax(rising, axis=-1), axis=-1) > self.table.rising_top_p) | best
        return self._keep(at_the_edge(self.scores, rising, kept, last=True))

    def typical_p(self) -> Draw:
        """Drop ids once those with surprise nearer to the expected one sum to `typical_p`.

        Source: arXiv:2202.00666.
        """
        mass = self.table.typical_p
        surprise = -_log_softmax(self.scores)
        probs = mx.exp(-surprise)
        expected = mx.where(probs > 0, probs * surprise, 0.0).sum(axis=-1, keepdims=True)
        distance = mx.abs(surprise - expected)
        order = mx.argsort(distance, axis=-1)
        rising = mx.take_along_axis(distance, order, axis=-1)
        enough = (mx.cumsum(mx.take_along_axis(probs, order, axis=-1), axis=-1) >= mass) & (mass < 1)
        return self._keep(distance <= mx.where(enough, rising, mx.inf).min(axis=-1, keepdims=True))

    def _becomes(self, scores: mx.array) -> Draw:
        return self._replace(scores=scores)

    def _keep(self, kept: mx.array) -> Draw:
        return self._becomes(mx.where(kept, self.scores, -mx.inf))

    def _is_end(self) -> mx.array:
        return _counted(self.scores.shape[-1]) == self.end

    def _candidates(self, k: mx.array) -> Draw:
        assert self.guided is not None
        kept = self._keep(self.guided >= self._kth_largest(self.guided, k))
        if self.allowed is None:
            return kept
        # if guidance picks only forbidden ids, upstream fails; here every allowed id is then a candidate
        lost = mx.isneginf(kept.scores).all(axis=-1, keepdims=True)
        return self._becomes(mx.where(lost, self.scores, kept.scores))

    def _kth_largest(self, x: mx.array, k: mx.array) -> mx.array:
        """Find the k-th largest of each row. (..., V), (B, 1, ...) → (..., 1).

        Where k is 0 or above V: at most the smallest, which keeps all.
        """
        size = x.shape[-1]
        if on_gpu():
            rising = mx.sort(x, axis=-1)
        else:  # where a sort takes 30 times a top-k
            largest = mx.topk(x, min(self.most or size, size), axis=-1)
            lowest = mx.full((*x.shape[:-1], 1), -mx.inf, x.dtype)
            rising = mx.concatenate([lowest, mx.sort(largest, axis=-1)], axis=-1)
        rank = mx.broadcast_to((-mx.minimum(k, size)).astype(mx.int32), (*x.shape[:-1], 1))
        return mx.take_along_axis(rising, rank, axis=-1)

    def _sums(self) -> tuple[mx.array, mx.array]:
        """Return the scores from the smallest up, and the sum of the probabilities above each."""
        rising = mx.sort(self.scores, axis=-1)
        probs = mx.softmax(rising, axis=-1)
        return rising, mx.cumsum(probs, axis=-1, reverse=True) - probs


def draw_rows(
    logits: Sequence[mx.array], table: Any, uniform: mx.array | None, sampler: Sampler, **inputs: Any
) -> mx.array:
    """Draw an id from each row. (B, ..., V) logits of each row of guidance → (B, ...) int32, < V.

    table: settings by name, from `sampler.named`, with the axes of an id's row.
    uniform: (B, ..., V), or (B, ..., 1) for the inverse distribution; None takes the best id of each row.
    inputs: fields of Draw from `allowed` to `end`, those that the sampler's rules need.
    """
    draw = score_rows(logits, table, sampler, **inputs)
    if uniform is None:
        ids = mx.argmax(draw.scores, axis=-1)
    else:
        ids = {"gumbel": gumbel, "inverse": inverse}[sampler.pick](draw, uniform)
    return ids.view(mx.int32)  # of uint32 or int32; a cast would be a launch


def score_rows(logits: Sequence[mx.array], table: Any, sampler: Sampler, **inputs: Any) -> Draw:
    """Apply the rules of a sampler: ids are drawn by the softmax of `scores`. Arguments as in `draw_rows`."""
    draw = Draw(logits[0], logits, table, scale=sampler.end_scale, most=sampler.most, **inputs)
    for rule in sampler.rules:
        draw = getattr(draw, rule)()
    return draw


def gumbel(draw: Draw, uniform: mx.array) -> mx.array:
    """Draw an id by the Gumbel maximum; at temperature 0 take the best. Source: arXiv:1611.01144."""
    noise = mx.log(-mx.log(uniform))
    return mx.argmax(draw.scores - mx.where(draw.table.temperature > 0, noise, 0.0), axis=-1)


def inverse(draw: Draw, uniform: mx.array) -> mx.array:
    """Draw the first id whose cumulative probability exceeds a number. uniform: (B, ..., 1)."""
    probs = mx.exp(_log_softmax(draw.scores))
    sums = mx.cumsum(probs, axis=-1)
    possible = probs > 0  # rounding may lower a parallel sum where nothing is added
    indices = _counted(probs.shape[-1])
    beyond = possible & (sums / sums[..., -1:] > uniform)
    first = mx.where(beyond, indices, probs.shape[-1]).min(axis=-1)
    return mx.minimum(first, mx.where(possible, indices, 0).max(axis=-1))


def occurrences(ids: mx.array, vocab_size: int) -> mx.array:
    """Count each id in `ids`. (B, N) → (B, V) float32."""
    counts, rows = mx.zeros((len(ids), vocab_size)), mx.arange(len(ids))[:, None]
    return counts.at[rows, ids].add(mx.ones(ids.shape))


def at_the_edge(x: mx.array, ordered: mx.array, kept: mx.array, *, last: bool) -> mx.array:
    """Map `kept`, a selection of the sorted values `ordered`, back to `x` as a stable sort would, on any
    backend. (..., V) each → (..., V) bool.

    last: of equal values at the cut keep the last ones, else the first ones.
    """
    edge = mx.where(kept, ordered, mx.inf).min(axis=-1, keepdims=True)
    above, equal = x > edge, (x == edge).astype(x.dtype)
    ties = kept.astype(x.dtype).sum(axis=-1, keepdims=True)
    ties = ties - above.astype(x.dtype).sum(axis=-1, keepdims=True)
    rank = mx.cumsum(equal, axis=-1)  # rank among equal values, from 1
    if last:
        rank = equal.sum(axis=-1, keepdims=True) + 1 - rank
    return above | ((equal > 0) & (rank <= ties))


def _counted(count: int) -> mx.array:
    """0 .. count-1, built on the host: a launch less than mx.arange."""
    return mx.array(np.arange(count, dtype=np.int32))


def _log_softmax(x: mx.array) -> mx.array:
    return x - mx.logsumexp(x, axis=-1, keepdims=True)

"""Filters of logits, for use inside kernels that hold them in one block of registers.

Cuts are found bit by bit, without a sort, until no further bit could change what is kept: ties at a cut stay.
"""

# pyright: reportInvalidTypeForm=false
# (Triton reads the kernels' annotations)

from __future__ import annotations

from torch_ref.cuda.triton import jit, tl


@jit
def ordered(x):
    """Map float32 numbers to unsigned integers of the same order."""
    bits = (x + 0.0).to(tl.int32, bitcast=True)  # -0 as 0
    return (bits ^ ((bits >> 31) | -2147483648)).to(tl.uint32, bitcast=True)


@jit
def edge_of(keys, top_k):
    """Find a number that only the `top_k` largest keys reach; with ties at the edge, the edge's."""
    edge = tl.full([], 0, dtype=tl.uint32)
    bit = tl.full([], 2147483648, dtype=tl.uint32)
    reached = tl.full([], -1, dtype=tl.int32)
    while (bit > 0) & (reached != top_k):
        tried = edge | bit
        reached = tl.sum((keys >= tried).to(tl.int32), axis=0)
        edge = tl.where(reached >= top_k, tried, edge)
        bit = bit >> 1
    return edge


@jit
def top_k_kept(ranking, scores, top_k, vocabulary):
    """Keep `scores` where `ranking` is among the `top_k` largest, -inf elsewhere; ties at the edge stay."""
    if (top_k > 0) & (top_k < vocabulary):
        keys = ordered(ranking)
        scores = tl.where(keys < edge_of(keys, top_k), -float("inf"), scores)
    return scores


@jit
def first_k_kept(scores, top_k, vocabulary):
    """Keep the `top_k` largest, -inf elsewhere; of ties at the edge the first."""
    if (top_k > 0) & (top_k < vocabulary):
        keys = ordered(scores)
        edge = edge_of(keys, top_k)
        above, ties = keys > edge, (keys == edge).to(tl.int32)
        left = top_k - tl.sum(above.to(tl.int32), axis=0)
        kept = above | ((ties > 0) & (tl.cumsum(ties, axis=0) <= left))
        scores = tl.where(kept, scores, -float("inf"))
    return scores


@jit
def softmax(scores):
    """Compute the probabilities of scores."""
    weights = tl.exp(scores - tl.max(scores, axis=0))
    return weights / tl.sum(weights, axis=0)


@jit
def top_p_kept(scores, top_p):
    """Drop numbers whose more probable predecessors already hold more than `top_p`; ties at the edge stay."""
    if top_p < 1:
        probs = softmax(scores)
        keys = probs.to(tl.int32, bitcast=True)
        edge = tl.full([], 0, dtype=tl.int32)
        bit = tl.full([], 1073741824, dtype=tl.int32)
        low, high = tl.full([], 2.0, dtype=tl.float32), tl.full([], 0.0, dtype=tl.float32)
        while (bit > 0) & (low != high):  # an edge that is still too low; low and high: sums around the rest
            tried = edge | bit
            before = tl.sum(tl.where(keys > tried, probs, 0.0), axis=0)
            too_low = before > top_p
            edge = tl.where(too_low, tried, edge)
            low, high = tl.where(too_low, before, low), tl.where(too_low, high, before)
            bit = bit >> 1
        after = tl.sum(tl.where(keys > edge, probs, 0.0), axis=0)
        edge = tl.where(after > top_p, edge, -1)
        scores = tl.where(keys <= edge, -float("inf"), scores)
    return scores


@jit
def rising_kept(scores, need):
    """From the least probable id up, drop ids while their sum is at most `need`; a negative one keeps all.

    Of equal ones at the cut the last stay; the most probable one, and the last of several, always does.
    """
    if need >= 0:
        probs, keys = softmax(scores), ordered(scores)
        edge = tl.full([], 0, dtype=tl.uint32)
        bit = tl.full([], 2147483648, dtype=tl.uint32)
        for _ in range(32):  # the largest edge that all ids below leave room for
            tried = edge | bit
            edge = tl.where(tl.sum(tl.where(keys < tried, probs, 0.0), axis=0) <= need, tried, edge)
            bit = bit >> 1
        highest = tl.max(keys, axis=0)
        edge = tl.minimum(edge, highest)
        below = tl.sum(tl.where(keys < edge, probs, 0.0), axis=0)
        equal = keys == edge
        rank = tl.cumsum(equal.to(tl.int32), axis=0)
        last = (edge == highest) & (rank == tl.sum(equal.to(tl.int32), axis=0))
        kept = (keys > edge) | (equal & ((below + rank * probs > need) | last))
        scores = tl.where(kept, scores, -float("inf"))
    return scores


@jit
def falling_kept(scores, most):
    """Keep the most probable ids until their sum exceeds `most`, with the one that crosses it.

    Of equal ones at the cut the first stay. More than 1 keeps all.
    """
    if most <= 1:
        probs = softmax(scores)
        keys = probs.to(tl.int32, bitcast=True)
        edge = tl.full([], 0, dtype=tl.int32)
        bit = tl.full([], 1073741824, dtype=tl.int32)
        for _ in range(31):  # the largest edge that is still too low
            tried = edge | bit
            edge = tl.where(tl.sum(tl.where(keys > tried, probs, 0.0), axis=0) > most, tried, edge)
            bit = bit >> 1
        edge = tl.where(tl.sum(tl.where(keys > edge, probs, 0.0), axis=0) > most, edge, -1)
        lowest = tl.min(tl.where(keys > edge, keys, 2147483647), axis=0)
        above = tl.sum(tl.where(keys > lowest, probs, 0.0), axis=0)
        equal = keys == lowest
        rank = tl.cumsum(equal.to(tl.int32), axis=0)
        kept = (keys > lowest) | (equal & (above + (rank - 1) * probs <= most))
        scores = tl.where(kept, scores, -float("inf"))
    return scores


@jit
def typical_kept(scores, mass):
    """Drop numbers once those with surprise nearer to the expected one sum to `mass`; 1 keeps all."""
    if mass < 1:
        highest = tl.max(scores, axis=0)
        total = tl.sum(tl.exp(scores - highest), axis=0)
        surprise = tl.log(total) + highest - scores
        probs = tl.exp(-surprise)
        expected = tl.sum(tl.where(probs > 0, probs * surprise, 0.0), axis=0)
        keys = tl.abs(surprise - expected).to(tl.int32, bitcast=True)
        edge = tl.full([], 0, dtype=tl.int32)
        bit = tl.full([], 1073741824, dtype=tl.int32)
        for _ in range(31):  # the largest edge whose predecessors are too few
            tried = edge | bit
            edge = tl.where(tl.sum(tl.where(keys < tried, probs, 0.0), axis=0) < mass, tried, edge)
            bit = bit >> 1
        scores = tl.where(keys > edge, -float("inf"), scores)
    return scores

"""MARS5's autoregressive generation in its plainest form, to compare both sides with.

Every id recomputes the whole sequence and the speaker vector, in float64 and without a cache; the filters are
written id by id, in NumPy.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.sides import ORACLE
from tts_core.mars5.inputs import CodecSequence
from tts_core.mars5.options import Mars5Options
from tts_core.nn.noise import Noise


def softmax(logits: np.ndarray) -> np.ndarray:
    shifted = np.exp(logits - logits.max())
    return shifted / shifted.sum()


def penalized(logits: np.ndarray, recent: list[int], options: Mars5Options) -> np.ndarray:
    out = logits.copy()
    for place, count in Counter(recent[-options.rep_penalty_window :]).items():
        out[place] -= count * options.freq_penalty + options.presence_penalty
    return out


def top(logits: np.ndarray, top_k: int, top_p: float) -> np.ndarray:
    """The filters in the sampler's order; all equal ids at the nucleus' edge stay."""
    out = logits.copy()
    if top_k > 0:
        out[out < np.sort(out)[::-1][min(top_k, len(out)) - 1]] = -np.inf
    if top_p < 1:
        order, probs = np.argsort(-out, kind="stable"), softmax(out)
        kept, before = [], 0.0
        for place in order:
            if before > top_p:
                break
            kept.append(place)
            before += probs[place]
        out[out < out[kept].min()] = -np.inf
    return out


def typical(logits: np.ndarray, mass: float) -> np.ndarray:
    if mass > 0.999:
        return logits
    probs = softmax(logits)
    with np.errstate(divide="ignore"):
        surprise = -np.log(probs)
    expected = sum(p * s for p, s in zip(probs, surprise, strict=True) if p > 0)
    score = np.abs(surprise - expected)
    held, edge = 0.0, np.inf
    for place in np.argsort(score, kind="stable"):
        held += probs[place]
        if held >= mass:
            edge = score[place]
            break
    return np.where(score > edge, -np.inf, logits)


def distribution(
    logits: np.ndarray, generated: list[int], expected: int, options: Mars5Options, lowest: int, end: int
) -> np.ndarray:
    """Distribution of the next id. (V,) float64."""
    out = penalized(logits, generated, options) if len(generated) > 1 else logits.copy()
    out[:lowest] = -np.inf
    if len(generated) <= expected:
        missing = max(expected - len(generated), 1)
        out[end] -= options.eos_penalty_factor * missing**options.eos_penalty_decay
    if options.temperature == 0:
        return softmax(top(out, 1, 1.0))
    out = top(out / options.temperature, options.top_k, options.top_p)
    return softmax(typical(out, options.typical_p))


@dataclass(frozen=True)
class Plain:
    """ids: all drawn ids, the end included. margin: smallest distance of a number to its id's bounds."""

    ids: list[int]
    margin: float


def generate(
    network: Any, codes: np.ndarray, sequence: CodecSequence, options: Mars5Options, noise: Noise
) -> Plain:
    """network: a CodecLM of the oracle's side. codes: (Q, P)."""
    vocabulary, drawn, margin = sequence.vocabulary, [], np.inf
    while not sequence.done:
        tokens = sequence.ids[None]
        rows = network.rows(network.speaker(ORACLE.array(codes.T[None])), ORACLE.array(tokens))
        length = rows.shape[1]
        rotation = network.positions(length)(0, length)
        logits = ORACLE.numpy(network.next_logits(rows, rotation, network.new_cache(length)))[0]
        probs = distribution(
            logits,
            sequence.generated,
            sequence.prompt.expected_tokens,
            options,
            vocabulary.lowest,
            vocabulary.end,
        )
        sums = np.cumsum(probs)
        number = float(noise.uniform(len(drawn), (1,))[0])
        place = int(np.argmax(sums / sums[-1] > number))
        margin = min(
            margin, *(abs(edge / sums[-1] - number) for edge in (sums[place], sums[place] - probs[place]))
        )
        drawn.append(place)
        sequence.accept(place)
    return Plain(drawn, margin)

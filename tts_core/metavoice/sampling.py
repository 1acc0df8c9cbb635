"""MetaVoice's sampling rules, as slow obvious NumPy: the definition that both fast samplers are tested
against.

Source: metavoiceio/metavoice-src, July 2024 (Apache-2.0): the rules of its fast and of its slow inference.
Differs from upstream: all is float32, where the fast path's sums are bfloat16; of equal logits at the edge of
top-p the fast rule keeps those with the highest ids and the slow rule those with the lowest, which is what a
stable sort does, where upstream leaves it to the sort.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from tts_core.errors import UsageError
from tts_core.noise import Noise, NormalNoise

LOWEST_TEMPERATURE = 1e-5  # of the fast rule
SECOND_STAGE_STEP = 1 << 32  # the row of a text's numbers that its second stage draws from


class SpeechNoise(Noise, NormalNoise, Protocol):
    """Numbers for one piece of a text: uniform ones for both stages, normal ones for multi-band diffusion."""


@dataclass(frozen=True)
class FirstStageSampling:
    """How one token is drawn.

    cfg_scale, text_cfg_scale: how far the speaker and the text push; 1 turns guidance off, and saves a row.
    temperature: in the fast rule nothing is below 1e-5, the slow rule takes none below.  top_p, top_k: None
    keeps every id; the slow rule takes one of them.  rule: of which of upstream's two programs.
    """

    cfg_scale: float = 3.0
    text_cfg_scale: float = 1.0
    temperature: float = 1.0
    top_p: float | None = 0.95
    top_k: int | None = None
    rule: Literal["fast", "slow"] = "fast"

    def __post_init__(self) -> None:
        slow = self.rule == "slow"
        for name, least in (("cfg_scale", 1 if slow else 0), ("text_cfg_scale", 1)):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= least):
                raise UsageError(f"{name}: {value} is not a number >= {least}")
        if self.rule not in ("fast", "slow"):
            raise UsageError(f"rule: {self.rule!r} is neither fast nor slow")
        if not slow and self.text_cfg_scale != 1:
            raise UsageError(f"text_cfg_scale: {self.text_cfg_scale} needs the slow rule; leave it at 1")
        coldest = LOWEST_TEMPERATURE if slow else 0
        if not (math.isfinite(self.temperature) and self.temperature >= coldest):
            raise UsageError(f"temperature: {self.temperature} is not a number >= {coldest}")
        if self.top_p is not None and not 0 <= self.top_p <= 1:
            raise UsageError(f"top_p: {self.top_p} is outside [0, 1]")
        if self.top_k is not None and (self.top_k != int(self.top_k) or self.top_k < 1):
            raise UsageError(f"top_k: {self.top_k} is not a whole number >= 1")
        if slow and self.top_p is not None and self.top_k is not None:
            raise UsageError("top_p and top_k: the slow rule takes one of them; set the other to None")

    @property
    def rows(self) -> int:
        """Rows that the network computes for one text: conditional, without speaker, without text."""
        if self.text_cfg_scale != 1:
            return 3
        return 1 if self.cfg_scale == 1 else 2

    @property
    def greedy(self) -> bool:
        """Whether a draw would not depend on its noise, but for equal logits."""
        return self.top_k == 1 or self.temperature == 0


def guide(rows: Sequence[np.ndarray], cfg_scale: float, text_cfg_scale: float = 1.0) -> np.ndarray:
    """Classifier-free guidance by speaker and text. FirstStageSampling.rows arrays, (..., V) each."""
    if len(rows) == 1:
        return rows[0]
    guided = (cfg_scale + text_cfg_scale - 1) * rows[0] + (1 - cfg_scale) * rows[1]
    return guided + (1 - text_cfg_scale) * rows[2] if len(rows) == 3 else guided


def keep_top_k(logits: np.ndarray, top_k: int | None) -> np.ndarray:
    """The `top_k` largest of each row, -inf elsewhere; ties at the edge stay. (..., V)."""
    if top_k is None or top_k >= logits.shape[-1]:
        return logits
    edge = np.sort(logits, axis=-1)[..., -top_k, None]
    return np.where(logits >= edge, logits, -np.inf)


def probabilities_fast(
    logits: np.ndarray, temperature: float, top_p: float | None, top_k: int | None
) -> np.ndarray:
    """What the fast rule draws from: from the least probable up, ids go while their sum is at most
    1 - top_p.

    (..., V) float32 → same. The most probable id always stays.
    """
    logits = keep_top_k(logits / np.float32(max(temperature, LOWEST_TEMPERATURE)), top_k)
    if top_p is not None:
        order = np.argsort(logits, axis=-1, kind="stable")
        rising = softmax(np.take_along_axis(logits, order, axis=-1))
        dropped = np.cumsum(rising, axis=-1) <= np.float32(1 - top_p)
        dropped[..., -1] = False
        back = np.zeros_like(dropped)
        np.put_along_axis(back, order, dropped, axis=-1)
        logits = np.where(back, -np.inf, logits)
    return softmax(logits)


def probabilities_slow(
    logits: np.ndarray, temperature: float, top_p: float | None, top_k: int | None
) -> np.ndarray:
    """What the slow rule draws from, and the second stage. (..., V) float32 → same."""
    probs = softmax(keep_top_k(logits / np.float32(temperature), top_k))
    return probs if top_p is None else keep_top_p(probs, top_p)


def keep_top_p(probs: np.ndarray, top_p: float) -> np.ndarray:
    """From the most probable down, ids stay until their sum is above `top_p`, the one that crosses it
    included; what stays is scaled to 1. (..., V) float32 → same.
    """
    order = np.argsort(-probs, axis=-1, kind="stable")
    held = np.cumsum(np.take_along_axis(probs, order, axis=-1), axis=-1)
    dropped = np.concatenate(
        [np.zeros_like(held[..., :1], bool), held[..., :-1] > np.float32(top_p)], axis=-1
    )
    back = np.zeros_like(dropped)
    np.put_along_axis(back, order, dropped, axis=-1)
    kept = np.where(back, np.float32(0), probs)
    return kept / kept.sum(axis=-1, keepdims=True)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Softmax over the last axis in the input's precision."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def race(probs: np.ndarray, waiting: np.ndarray) -> np.ndarray:
    """One id per row with its probability: the first to arrive, waiting times being exponential.

    (..., V) each → (...) int32.
    """
    return np.argmax(probs / waiting, axis=-1).astype(np.int32)


def waiting_times(noise: Noise, step: int, shape: tuple[int, ...]) -> np.ndarray:
    """Exponentially distributed numbers for generated row `step`. → float32, > 0."""
    return (-np.log(noise.uniform(step, shape).astype(np.float64))).astype(np.float32)

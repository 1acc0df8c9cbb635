"""Scores and draws of a side by a sampler, NumPy in and out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tests.sides import Side
from tts_core.nn.sampling import Sampler


def only(sampler: Sampler, *rules: str) -> Sampler:
    """The sampler with these rules instead of its own."""
    return replace(sampler, rules=rules)


def given(
    side: Side, sampler: Sampler, logits: Sequence[np.ndarray], settings: Any, inputs: dict[str, Any]
) -> dict[str, Any]:
    """Arguments of both functions below. settings: of all rows, or a list of one for each."""
    rows = settings if isinstance(settings, list) else [settings]
    table = sampler.named(side.array(sampler.table(rows)), logits[0].ndim)
    arrays = {name: side.array(x) if isinstance(x, np.ndarray) else x for name, x in inputs.items()}
    return {"logits": [side.array(row) for row in logits], "table": table, "sampler": sampler} | arrays


def score(
    side: Side, sampler: Sampler, logits: Sequence[np.ndarray], settings: Any, **inputs: Any
) -> np.ndarray:
    """The logits that the sampler draws from; -inf for ids that it does not draw."""
    return side.numpy(
        side.module("sampling").score_rows(**given(side, sampler, logits, settings, inputs)).scores
    )


def draw(
    side: Side,
    sampler: Sampler,
    logits: Sequence[np.ndarray],
    settings: Any,
    uniform: np.ndarray | None,
    **inputs: Any,
) -> np.ndarray:
    """The ids that it draws; with the same numbers of the host, those of the other side."""
    numbers = None if uniform is None else side.array(uniform)
    arguments = given(side, sampler, logits, settings, inputs)
    return side.numpy(side.module("sampling").draw_rows(**arguments, uniform=numbers))

"""The requests of several texts, each with its own prompt, seed, limit and random numbers."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tts_core.errors import UsageError
from tts_core.nn.noise import numbers_per_text, per_text
from tts_core.pipeline import PromptLike
from tts_core.printable import counted

Request = TypeVar("Request")
Options = TypeVar("Options", bound=Any)  # a model's, with seed, max_frames and noise


def requests_of(
    request: Callable[[str, Options, PromptLike], Request],
    texts: Sequence[str],
    options: Options,
    prompts: PromptLike | Sequence[PromptLike],
) -> list[Request]:
    """Check several texts. Raises UsageError for other numbers of prompts or values than of texts.

    request: checks one, as Pipeline.request.
    prompts: one for all, or one per text.
    """
    each = _one_each(options, texts)
    given = [*prompts] if isinstance(prompts, Sequence) else [prompts] * len(texts)
    if len(given) != len(texts):
        raise UsageError(
            f"prompts: {len(given)} for {counted(len(texts), 'text')}; "
            "give one per text, None for a text without"
        )
    return [request(*one) for one in zip(texts, each, given, strict=True)]


def _one_each(options: Options, texts: Sequence[str]) -> list[Options]:
    """The options of each text of a batch. Raises UsageError for fewer values, or more, than texts."""
    if isinstance(texts, str):
        raise UsageError("texts: got one string; give a list of strings")
    if not texts:
        raise UsageError("texts: the list is empty")
    count = len(texts)
    seed = secrets.randbits(32) if options.seed is None else options.seed
    seeds = numbers_per_text("seed", seed, count)
    limits: Sequence[int | None] = [None] * count
    if options.max_frames is not None:
        limits = numbers_per_text("max_frames", options.max_frames, count)
    noise = [None] * count if options.noise is None else per_text(options.noise, seeds)
    return [
        replace(options, seed=one, max_frames=most, noise=source)
        for one, most, source in zip(seeds, limits, noise, strict=True)
    ]

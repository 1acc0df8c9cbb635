"""What a caller asks for one text, or for several: prompt, seed, limit and random numbers of each."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar, cast

from tts_core.errors import UsageError
from tts_core.nn.noise import check_seed, numbers_per_text, per_text
from tts_core.pipeline import PromptLike
from tts_core.printable import counted

Options = TypeVar("Options", bound=Any)  # a model's, with seed, max_frames, max_seconds and noise
Voice = TypeVar("Voice")


class GivenText(NamedTuple, Generic[Options]):
    """One of several texts. number: from 1, for messages.  options: its own values only."""

    number: int
    text: str
    options: Options
    prompt: PromptLike


def given_texts(
    texts: Sequence[str], options: Options, prompts: PromptLike | Sequence[PromptLike]
) -> list[GivenText[Options]]:
    """Give each of several texts its prompt and its values of options; a random seed is shared by all.

    prompts: one for all, or one per text.
    Raises UsageError for other numbers of prompts or values than of texts.
    """
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
    own = [
        replace(options, seed=seed, max_frames=most, noise=source)
        for seed, most, source in zip(seeds, limits, noise, strict=True)
    ]
    several = isinstance(prompts, Sequence) and not isinstance(prompts, str | bytes)
    given = [*cast(Sequence[PromptLike], prompts)] if several else [cast(PromptLike, prompts)] * count
    if len(given) != count:
        raise UsageError(
            f"prompts: {len(given)} for {counted(count, 'text')}; "
            "give one for all, or one per text, None for a text without"
        )
    return [
        GivenText(index, *item) for index, item in enumerate(zip(texts, own, given, strict=True), start=1)
    ]


def read_once(read: Callable[[PromptLike], Voice]) -> Callable[[PromptLike], Voice]:
    """Return a function that reads a prompt once: texts with the same one share its voice."""
    known: dict[int, tuple[PromptLike, Voice]] = {}  # a prompt keeps its id while it is here

    def voice(prompt: PromptLike) -> Voice:
        if id(prompt) not in known:
            known[id(prompt)] = prompt, read(prompt)
        return known[id(prompt)][1]

    return voice


def seed_of(options: Any) -> int:
    """Return a text's seed, by default a random one. Raises UsageError for several values."""
    seed = secrets.randbits(32) if options.seed is None else numbers_per_text("seed", options.seed, 1)[0]
    return check_seed(seed)


def frames_of(options: Any, rate: float, hop: int = 1) -> int | None:
    """Read a text's limit in frames from max_frames or max_seconds; None if neither is given.

    rate, hop: a second has rate / hop frames. Raises UsageError for both, or several values.
    """
    if options.max_seconds is not None:
        if options.max_frames is not None:
            raise UsageError("max_frames: max_seconds sets the same limit; give only one")
        return math.ceil(options.max_seconds * rate / hop)
    return None if options.max_frames is None else numbers_per_text("max_frames", options.max_frames, 1)[0]

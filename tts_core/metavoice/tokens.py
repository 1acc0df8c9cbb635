"""Texts of unequal lengths side by side: which id stands in the next column, and where a text ends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tts_core.errors import UsageError


class TokenRows:
    """One row of ids a text, all starting at position 0, filled column by column.

    Longer prompts go on where shorter ones have ended. Behind its end a row is filled with the end id.
    prompts: (S,) ids each, S > 0.  limits: the most ids to be made for each, > 0.
    """

    def __init__(self, prompts: Sequence[np.ndarray], limits: Sequence[int], *, end: int):
        self.prompts, self.limits, self.end = list(prompts), list(limits), end
        self.filled = min(map(len, prompts))
        longest = max(len(prompt) + limit for prompt, limit in zip(prompts, limits, strict=True))
        self.ids = np.full((len(prompts), longest), end, np.int32)
        for row, prompt in zip(self.ids, prompts, strict=True):
            row[: len(prompt)] = prompt
        self.lengths = [0] * len(prompts)  # of finished rows, 0 of others

    @property
    def done(self) -> bool:
        """Whether every row has ended."""
        return all(self.lengths)

    @property
    def is_free(self) -> bool:
        """Whether no prompt reaches into the next column."""
        return self.filled >= max(map(len, self.prompts))

    def steps(self, ahead: int = 0) -> list[int | None]:
        """Which of its own ids each row makes next, from 0; None where the prompt or the end decides.

        ahead: columns to look beyond the next, as if no row ended before.
        """
        ends = zip(self.prompts, self.limits, self.lengths, strict=True)
        steps = [(self.filled + ahead - len(prompt), limit, length) for prompt, limit, length in ends]
        return [step if 0 <= step < limit and not length else None for step, limit, length in steps]

    def accept(self, drawn: np.ndarray) -> None:
        """Fill the next column: drawn ids where a row makes its own, (B,); a drawn end id ends the row."""
        for item, step in enumerate(self.steps()):
            if step is None:
                continue
            self.ids[item, self.filled] = drawn[item]
            if drawn[item] == self.end or step + 1 == self.limits[item]:
                self.lengths[item] = self.filled + 1
        self.filled += 1

    def sequences(self) -> list[np.ndarray]:
        """Prompt and made ids of every row, the end id included where it was drawn. (N,) int32 each."""
        return [row[:length].copy() for row, length in zip(self.ids, self.lengths, strict=True)]


def grouped(prompts: Sequence[np.ndarray], size: int) -> list[list[int]]:
    """Places of texts, at most `size` together, texts of like length with each other."""
    order = sorted(range(len(prompts)), key=lambda item: len(prompts[item]))
    return [order[start : start + size] for start in range(0, len(order), size)]


def check_room(prompts: Sequence[np.ndarray], limits: Sequence[int], room: int) -> None:
    """Raise UsageError for an empty prompt, a limit below 1, and what is more than `room` positions."""
    for item, (prompt, limit) in enumerate(zip(prompts, limits, strict=True), start=1):
        if not len(prompt):
            raise UsageError(f"text {item}: no ids; an empty text still has its end")
        if limit < 1:
            raise UsageError(f"text {item}: a limit of {limit} ids; ask for at least 1")
        if len(prompt) + limit > room:
            raise UsageError(
                f"text {item}: {len(prompt)} ids of text and {limit} of audio are more than the model's "
                f"{room}; split the text, or ask for less"
            )

"""A batch of texts of unequal lengths, filled column by column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tts_core.errors import UsageError


class TokenRows:
    """One row of ids per text, all starting at position 0, filled column by column.

    While shorter prompts have ended, longer ones still supply their ids. After its end a row is filled with
    the end id.  prompts: (S,) ids each, S > 0.  limits: most new ids of each, > 0.
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
        """True once every row has ended."""
        return all(self.lengths)

    @property
    def is_free(self) -> bool:
        """True if no prompt supplies an id of the next column."""
        return self.filled >= max(map(len, self.prompts))

    def steps(self, ahead: int = 0) -> list[int | None]:
        """Index, from 0, of the new id that each row draws next; None if its prompt or end supplies the id.

        ahead: columns to look beyond the next, as if no row ended before.
        """
        ends = zip(self.prompts, self.limits, self.lengths, strict=True)
        steps = [(self.filled + ahead - len(prompt), limit, length) for prompt, limit, length in ends]
        return [step if 0 <= step < limit and not length else None for step, limit, length in steps]

    def accept(self, drawn: np.ndarray) -> None:
        """Fill the next column. drawn: (B,) ids, used for rows past their prompt; an end id ends its row."""
        for item, step in enumerate(self.steps()):
            if step is None:
                continue
            self.ids[item, self.filled] = drawn[item]
            if drawn[item] == self.end or step + 1 == self.limits[item]:
                self.lengths[item] = self.filled + 1
        self.filled += 1

    def sequences(self) -> list[np.ndarray]:
        """Return prompt and new ids of every row, with the end id if it was drawn. (N,) int32 each."""
        return [row[:length].copy() for row, length in zip(self.ids, self.lengths, strict=True)]


def grouped(prompts: Sequence[np.ndarray], size: int) -> list[list[int]]:
    """Group indices of texts of similar length, at most `size` per group."""
    order = sorted(range(len(prompts)), key=lambda item: len(prompts[item]))
    return [order[start : start + size] for start in range(0, len(order), size)]


def check_room(prompts: Sequence[np.ndarray], limits: Sequence[int], room: int) -> None:
    """Raise UsageError for an empty prompt, a limit below 1, or a text longer than `room` positions."""
    for item, (prompt, limit) in enumerate(zip(prompts, limits, strict=True), start=1):
        if not len(prompt):
            raise UsageError(f"text {item}: no ids; even an empty text has an end id")
        if limit < 1:
            raise UsageError(f"text {item}: a limit of {limit} ids; give at least 1")
        if len(prompt) + limit > room:
            raise UsageError(
                f"text {item}: {len(prompt)} ids of text and {limit} of audio are more than the model's "
                f"{room}; split the text, or lower the limit"
            )

"""Dia2's state machine: hands out the words of a script, one token a step, when the network asks for them.

Source: nari-labs/dia2@8687268, Apache-2.0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from tts_core.dia2.config import Dia2Config
from tts_core.dia2.script import Entry

MAX_PADDING = 6  # steps without a new word before one is forced; upstream ignores the config's number


def longest_steps(entry: Entry) -> int:
    """Count the steps after which the next entry is taken at the latest."""
    return 1 + (max(MAX_PADDING, entry.padding) if entry.tokens else entry.padding)


class Emitted(NamedTuple):
    """One step's text: the ids of both streams. took: an entry was taken."""

    main: int
    second: int
    took: bool


class StateMachine:
    """The entries still to be spoken, and the tokens on their way to the text streams. Host integers only.

    initial_padding: steps before the first word.
    words: (text, step) of each word taken.
    taken: step at which each entry was taken.
    end: step at which the entries ran out.
    """

    def __init__(
        self,
        entries: Iterable[Entry],
        *,
        new_word: int,
        pad: int,
        ahead: int,
        initial_padding: int,
        max_padding: int = MAX_PADDING,
    ):
        self.entries = deque(entries)
        self.new_word, self.pad, self.ahead, self.max_padding = new_word, pad, ahead, max_padding
        self.budget = self.forced = initial_padding
        self.pending, self.look = deque[int](), deque[int]()
        self.words: list[tuple[str, int]] = []
        self.taken: list[int] = []
        self.end: int | None = None

    @classmethod
    def of(cls, config: Dia2Config, entries: Iterable[Entry], initial_padding: int) -> StateMachine:
        """Build the machine of a model."""
        return cls(
            entries,
            new_word=config.text_new_word_id,
            pad=config.text_pad_id,
            ahead=config.second_stream_ahead,
            initial_padding=initial_padding,
        )

    def needs_more(self) -> bool:
        """True if a step could need an entry that is not there yet: for texts that are still growing.

        Words are counted, not breaks: those are what a step looks ahead to.
        """
        return sum(bool(entry.tokens) for entry in self.entries) <= self.ahead

    def longest_left(self) -> int:
        """Count the steps after which the entries have run out at the latest, whatever the actions."""
        return max(self.budget, self.forced, len(self.pending)) + sum(map(longest_steps, self.entries))

    def step(self, step: int, action: int, *, is_forced: bool = False) -> Emitted:
        """Take the network's action: 1 asks for a new word, 0 does not; the ids of both mean themselves.

        is_forced: the action of a prefix, which no padding overrules.
        """
        begins = action == 1 or (action == self.new_word and action != 0)
        if self.pending:
            begins = False
        elif not is_forced:
            begins = False if self.forced > 0 else begins or self.budget <= 0
        took = begins and bool(self.entries)
        if took:
            begins = self._take(step)
        elif begins:
            begins = self.ahead > 0 and self.end is None
            self.end = step if self.end is None else self.end
        output = self.new_word if begins else self._padding()
        if self.ahead == 0:
            return Emitted(output, output, took)
        if output == self.new_word:  # also as a token of a word
            return Emitted(self._next(self.pending), self.new_word, took)
        return Emitted(output, self._next(self.look), took)

    def _take(self, step: int) -> bool:
        """Take the first entry. Returns True for a word, False for a break."""
        entry = self.entries.popleft()
        self.taken.append(step)
        self.forced = entry.padding
        if not entry.tokens:
            return False
        self.words.append((entry.text, step))
        self.pending.extend(entry.tokens)
        if self.ahead > 0:
            words = (entry for entry in self.entries if entry.tokens)
            self.look.extend(
                next((word.tokens for index, word in enumerate(words, 1) if index == self.ahead), ())
            )
        self.budget = self.max_padding
        return True

    def _padding(self) -> int:
        self.budget -= self.budget > 0
        self.forced -= self.forced > 0
        return self._next(self.pending)

    def _next(self, queue: deque[int]) -> int:
        return queue.popleft() if queue else self.pad

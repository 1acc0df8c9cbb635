"""A text that is spoken while it comes: entries for one run after the other, each of which ends within the
context.

A run ends before an entry that has come. Nothing after that entry is looked at, so no text is awaited, and
the same text has the same pieces however it comes:
- before the first turn that begins when less than a quarter of the context is left;
- after the first sentence that ends when less than an eighth is left;
- else before the first word, or break, that might not fit any more.
"""

from __future__ import annotations

from collections import deque

from tts_core.dia2.machine import longest_steps
from tts_core.dia2.pieces import check_each, ends_sentence, tag_of, with_tag
from tts_core.dia2.reading import Feed
from tts_core.dia2.run import Dia2Run
from tts_core.dia2.script import Entry, Reader

TURN, SENTENCE = 1 / 4, 1 / 8  # of the context: what is left when a turn or a sentence ends a piece


class ArrivingEntries:
    """The entries that have come and that no run has. most: steps of a piece's entries.

    is_open: more text may come.
    """

    def __init__(self, reader: Reader, most: int):
        self.reader, self.most, self.is_open = reader, most, True
        self._feed, self._entries = Feed(reader), deque[Entry]()
        self._speaker = ""  # of the last word that was given

    @property
    def has_entries(self) -> bool:
        """True if entries are left for further runs."""
        return bool(self._entries)

    def hear(self, text: str | None) -> None:
        """Take the next piece of the text; None is its end, and a second one does nothing.

        Raises UsageError for text that cannot be read, and for a word or break that is too long.
        """
        if not self.is_open:
            return
        entries = self._feed.end() if text is None else self._feed.add(text)
        check_each(entries, self.most)
        self._entries += entries
        self.is_open = text is not None

    def supply(self, run: Dia2Run) -> None:
        """Give a run the entries that its next step may need, and close it where its piece ends."""
        while run.is_open and run.needs_more:
            if not self._entries:
                run.is_open = self.is_open
                return
            entry, own = self._entries[0], run.own
            if not any(one.tokens for one in own):
                entry = with_tag(self.reader, self._speaker, entry)
            if own and self._ends(run, own[-1], entry):
                run.is_open = False
                return
            self._entries.popleft()
            run.extend([entry])
            self._speaker = tag_of(self.reader, entry) or self._speaker

    def _ends(self, run: Dia2Run, before: Entry, entry: Entry) -> bool:
        """Decide whether a run ends between two entries; it has the first."""
        left = self.most - run.longest
        is_turn = left < TURN * self.most and tag_of(self.reader, entry) != ""
        is_sentence = left < SENTENCE * self.most and ends_sentence(before)
        return is_turn or is_sentence or longest_steps(entry) > left

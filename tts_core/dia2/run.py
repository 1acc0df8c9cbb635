"""One run of Dia2, step by step: the state machine, the grid of codes, and entries that arrive.

Host integers only. In the grid stream c of a frame lags by delay[c] columns.

A run ends before an entry that has come. Nothing after that entry is looked at, so no text is awaited, and
the same text has the same pieces however it comes:
- before the first turn that begins when less than a quarter of the context is left;
- after the first sentence that ends when less than an eighth is left;
- else before the first word, or break, that might not fit any more.

Source: nari-labs/dia2@8687268, Apache-2.0.
Differs from upstream: text may be added while the run goes on.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from tts_core.dia2.config import Dia2Config
from tts_core.dia2.machine import MAX_PADDING, StateMachine, longest_steps
from tts_core.dia2.pieces import check_each, ends_sentence, tag_of, with_tag
from tts_core.dia2.recordings import Prefix
from tts_core.dia2.script import Entry, Feed, Reader
from tts_core.nn.sentinels import Sentinel
from tts_core.printable import counted
from tts_core.text.captions import Word

_LOG = logging.getLogger("tts_core")
FREE = Sentinel.FREE  # in place of a code that is not known to the host


def apply_delay(codes: np.ndarray, delays: Sequence[int], pad: int) -> np.ndarray:
    """Shift stream c right by delays[c]. (Q, T) → (Q, T + max(delays)), `pad` where nothing is."""
    delayed = np.full((codes.shape[0], codes.shape[1] + max(delays)), pad, codes.dtype)
    for stream, delay in enumerate(delays):
        delayed[stream, delay : delay + codes.shape[1]] = codes[stream]
    return delayed


def revert_delay(grid: np.ndarray, delays: Sequence[int]) -> np.ndarray:
    """Undo `apply_delay` and drop frames without all codes. (Q, T) → (Q, T - max(delays))."""
    frames = max(0, grid.shape[1] - max(delays))
    return np.stack([row[delay : delay + frames] for row, delay in zip(grid, delays, strict=True)])


class CodeGrid:
    """Columns of one text, written one at a time. Host integers only.

    prefix: (Q, P) int32 codes that are read first; empty without one.  columns: in total, with the prefix's.
    """

    def __init__(self, delays: Sequence[int], prefix: np.ndarray, columns: int, *, bos: int, pad: int):
        self.delays, self.bos = np.asarray(delays), bos
        known = max(1, prefix.shape[1])  # without a prefix the first column is read as BOS
        self.codes = np.full((len(delays), columns), FREE, np.int32)
        self.codes[:, :known] = pad
        if prefix.shape[1]:
            self.codes[:, :known] = apply_delay(prefix.astype(np.int32), delays, pad)[:, :known]
        self.filled = 0  # columns that the result has

    def read(self, column: int) -> np.ndarray:
        """Return the audio ids of a step, (Q,): BOS in a stream that has not begun, FREE where no code is
        written.
        """
        return np.where(column < self.delays, self.bos, self.codes[:, column])

    def write(self, column: int, codes: np.ndarray) -> None:
        """Write the codes, (Q,), that a step predicts for the next column."""
        self.codes[:, column] = codes
        self.filled = column + 1

    @property
    def frames(self) -> int:
        """Complete frames so far."""
        return max(0, self.filled - int(self.delays.max()))

    def undelayed(self, start: int, stop: int) -> np.ndarray:
        """Return the codes of frames [start, stop). (Q, stop - start) int32."""
        whole = revert_delay(self.codes[:, : stop + int(self.delays.max())], self.delays.tolist())
        return whole[:, start:stop]


MORE_FRAMES = MAX_PADDING  # after the last word, besides the longest delay


class Dia2Run:
    """The inputs of every step, and what becomes of its ids.

    entries: of the text, so far.
    prefix: a voice to continue.
    max_frames: most frames of speech; None is the context's.
    has_prefix: the result begins with the prefix.
    is_open: more text may come.
    """

    def __init__(
        self,
        config: Dia2Config,
        entries: Iterable[Entry],
        *,
        prefix: Prefix | None = None,
        initial_padding: int = 2,
        max_frames: int | None = None,
        has_prefix: bool = False,
        is_open: bool = False,
    ):
        self.config, self.is_open = config, is_open
        self.prefix = prefix or Prefix(np.zeros((config.n_streams, 0), np.int32), (), frozenset())
        self.entries = [*self.prefix.entries, *entries]  # all, in the order of speech
        self.machine = StateMachine.of(config, self.entries, initial_padding)
        self.initial_padding, self.has_prefix = initial_padding, has_prefix
        self.start = max(0, self.prefix.frames - 1)  # the prefix's last step is run again, as in upstream
        steps = config.max_context_steps
        if max_frames is not None:
            steps = min(steps, max_frames + config.longest_delay - 1)
        self.last = self.start + steps  # the step that is not run any more
        self.grid = CodeGrid(
            config.delay_pattern,
            self.prefix.codes,
            self.last + 1,
            bos=config.audio_bos_id,
            pad=config.audio_pad_id,
        )
        self.step = self.start  # the next to run
        self.accepted = self.start  # the next whose codes come
        self.text = config.text_bos_id, config.text_pad_id  # ids of both streams, input of the next step
        self.texts: list[tuple[int, int]] = []  # those of all steps that were run, a prefix's first
        self.cutoff: int | None = None
        self.first_word: int | None = None
        self.has_begun = False  # the prefix was read

    def warm_up(self) -> np.ndarray:
        """Return the inputs of the prefix's steps, whose actions are forced. (P, 2 + Q) int32."""
        config, rows = self.config, []
        self.has_begun = True
        for step in range(self.prefix.frames):
            rows.append([*self.text, *self.grid.read(step)])
            self.texts.append(self.text)
            forced = config.text_new_word_id if step in self.prefix.steps else config.text_pad_id
            emitted = self.machine.step(step, forced, is_forced=True)
            self.text = emitted.main, emitted.second
        return np.array(rows, np.int32).reshape(-1, 2 + config.n_streams)

    def tokens(self) -> np.ndarray:
        """Return the inputs of the next step; FREE for a code of the step before that was not accepted yet.

        (2 + Q,) int32.
        """
        return np.array([*self.text, *self.grid.read(self.step)], np.int32)

    def act(self, action: int) -> tuple[int, int]:
        """Take the step's action and go on to the next step; returns the new ids of both text streams."""
        emitted = self.machine.step(self.step, action)
        self.texts.append(self.text)
        self.text = emitted.main, emitted.second
        if self.first_word is None and emitted.main == self.config.text_new_word_id:
            self.first_word = self.step - self.initial_padding
        if self.machine.end is not None and self.cutoff is None:
            self.cutoff = self.machine.end + self.config.longest_delay + MORE_FRAMES
        self.step += 1
        return self.text

    def accept(self, codes: np.ndarray) -> None:
        """Take the codes, (Q,), of the first step whose codes have not come."""
        self.accepted += 1
        self.grid.write(self.accepted, codes)

    def history(self) -> tuple[np.ndarray, tuple[int, int]]:
        """Return the inputs of all steps up to the first whose codes have not come, (T, 2 + Q) int32, and the
        ids of both text streams after it.
        """
        columns = [*range(self.prefix.frames), *range(self.start, self.accepted + 1)]
        texts = [*self.texts, self.text]
        rows = [
            [*text, *self.grid.read(column)]
            for text, column in zip(texts[: len(columns)], columns, strict=True)
        ]
        return np.array(rows, np.int32), texts[len(columns)]

    def extend(self, entries: Iterable[Entry]) -> None:
        """Add entries of text that came while the run went on."""
        more = list(entries)
        self.entries += more
        self.machine.entries.extend(more)

    def late_words(self) -> list[str]:
        """List the prefix's words that its steps did not take: they are spoken after it."""
        return [entry.text for entry in self.entries[len(self.machine.taken) : len(self.prefix.entries)]]

    def warn_of_late_words(self) -> None:
        """Log a warning of `late_words`."""
        if late := self.late_words():
            _LOG.warning(
                "prompt: %s of the recordings will be spoken again, from %r on: the words come too close to "
                "each other or to the end; give them earlier times, or leave them out",
                *(counted(len(late), "word"), late[0]),
            )

    @property
    def own(self) -> list[Entry]:
        """Its entries without the prefix's."""
        return self.entries[len(self.prefix.entries) :]

    @property
    def needs_more(self) -> bool:
        """True if the next step could need an entry that was not given; so could the prefix's, which come
        first.
        """
        if self.has_begun:
            return self.machine.needs_more()
        return sum(bool(entry.tokens) for entry in self.own) <= self.machine.ahead

    @property
    def waits(self) -> bool:
        """True if the next step may need text that has not come."""
        return self.has_step and self.is_open and self.needs_more

    @property
    def longest(self) -> int:
        """Most steps from the first one until the entries have run out, whatever the actions."""
        if self.has_begun:
            return self.step - self.start + self.machine.longest_left()
        return max(MAX_PADDING, self.initial_padding) + sum(map(longest_steps, self.own))

    @property
    def has_step(self) -> bool:
        """True if a step is left to run."""
        return self.step < self.last and (self.cutoff is None or self.step < self.cutoff)

    @property
    def is_done(self) -> bool:
        """True if no step is left, and the codes of all have come."""
        return not self.has_step and self.accepted == self.step

    @property
    def finish_reason(self) -> Literal["stop", "length"]:
        """Return "stop" if the text was spoken to its end, "length" if a limit came first."""
        return "stop" if self.cutoff is not None and self.step >= self.cutoff else "length"

    @property
    def crop(self) -> int | None:
        """First frame of the result; None while it depends on steps to come."""
        if self.has_prefix:
            return 0
        first = self.start  # with lookahead the main stream does not show new words
        if not self.config.second_stream_ahead:
            if self.first_word is None and not self.is_done:
                return None
            first = self.start if self.first_word is None else max(self.first_word, 0)
        return first if not self.is_done or first < self.grid.frames else 0

    @property
    def frames(self) -> int:
        """Frames of the result so far."""
        return 0 if self.crop is None else max(0, self.grid.frames - self.crop)

    @property
    def spoken(self) -> int:
        """Frames so far that a limit counts: a prefix that is kept does not."""
        return self.frames - (self.start if self.has_prefix else 0)

    def codes(self, start: int, stop: int) -> np.ndarray:
        """Return frames [start, stop) of the result. (Q, stop - start) int32."""
        crop = self.crop or 0
        return self.grid.undelayed(crop + start, crop + stop)

    def beginning(self, most_frames: int) -> Prefix | None:
        """Return the speech up to the last word that begins within `most_frames`, as a voice to continue.

        None if not even one word ends there. Only for a run without a prefix.
        """
        assert not self.prefix.frames, "the voice is the prefix's own"
        crop = self.crop or 0
        steps = [step - crop for step in self.machine.taken]
        first = next((index for index, step in enumerate(steps) if step >= 0), len(steps))
        ends = [index for index, step in enumerate(steps) if 0 < step <= min(most_frames, self.frames)]
        if not ends or ends[-1] <= first:
            return None
        codes = self.codes(0, steps[ends[-1]])
        return Prefix(codes, tuple(self.entries[first : ends[-1]]), frozenset(steps[first : ends[-1]]))

    def words(self, frame_rate: float) -> list[Word]:
        """Return the words so far with the time at which each begins, in seconds of the result."""
        given: Sequence[tuple[str, int]] = self.machine.words
        if not self.has_prefix:
            given = given[sum(bool(entry.tokens) for entry in self.prefix.entries) :]
        crop = self.crop or 0
        return [Word(text, (step - crop) / frame_rate) for text, step in given if step >= crop]


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

    def feed(self, text: str | None) -> None:
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
            if not any(item.tokens for item in own):
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

"""Join the pieces of a text at the requested speed, with pauses, and note the time of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tts_core.audio.splicing import PAUSE, Splicer
from tts_core.audio.stretch import Stretcher
from tts_core.audio.turn_ends import Levels, turn_ends
from tts_core.text.breaks import Silences
from tts_core.text.captions import Cue, Word, in_turns, turn_texts


@dataclass(frozen=True)
class Pacing:
    """Joins between the pieces of a text.

    texts: of the pieces, for captions.
    silences: seconds before the first piece and after each piece, one more than texts; None is the usual
    pause between pieces, and no pause at both ends.
    speed: of the speech and the usual pauses; those given in seconds keep their length.
    """

    texts: tuple[str, ...]
    silences: Silences
    speed: float = 1.0

    def seconds(self, speech: float) -> float:
        """Estimate the seconds of sound. speech: seconds of all pieces at speed 1, without pauses."""
        return speech / self.speed + sum(silence or 0 for silence in self.silences)

    def followed_by(self, more: Pacing) -> Pacing:
        """Append the pieces of further text. The silence between them is the sum of both, if any."""
        *before, end = self.silences
        start, *after = more.silences
        between = None if end is None and start is None else (end or 0) + (start or 0)
        return Pacing((*self.texts, *more.texts), (*before, between, *after), self.speed)

    def pause(self, piece: int) -> float:
        """Seconds of silence after a piece that another one follows."""
        silence = self.silences[piece + 1]
        return PAUSE / self.speed if silence is None else silence


class Delivery:
    """The sound of one text: takes its pieces chunk by chunk, gives samples as far as they are final.

    more: its text goes on, with `extend`.
    """

    def __init__(self, pacing: Pacing, sample_rate: int, *, more: bool = False):
        self.pacing, self.sample_rate = pacing, sample_rate
        self._piece = 0  # of the piece under way
        self._is_between = False  # the piece before has ended, and its pause has not come
        self._splicer = Splicer(sample_rate) if more or len(pacing.texts) > 1 else None
        self._stretcher = Stretcher(sample_rate, pacing.speed)
        self._lead = self._silence(pacing.silences[0])
        self._start = self._end = len(self._lead)  # of the piece under way, in samples of the sound
        self._levels = Levels(sample_rate)
        self._words: Sequence[Word] = ()
        self._cues: list[Cue] = []
        self._timed: list[Word] = []

    def extend(self, more: Pacing) -> None:
        """Append further text; its pieces follow the last known one, which must not be finished."""
        self.pacing = self.pacing.followed_by(more)

    def add(self, part: np.ndarray, *, last_of_piece: bool = False, is_followed: bool = True) -> np.ndarray:
        """The next (L,) samples of the piece under way → samples that nothing to come can change.

        last_of_piece: another piece follows.  is_followed: False if its text may not be known yet; the pause
        then comes with the next piece.
        """
        sound = [self._between(), self._spliced(self._stretcher.add(part))]
        if last_of_piece:
            sound.append(self._spliced(self._stretcher.finish()))
            self._end_piece()
            self._is_between = True
            sound.append(self._pause() if is_followed else self._between())
        return np.concatenate(sound)

    def finish(self) -> np.ndarray:
        """The rest of the last piece; after the last of all, the silence that the text ends with."""
        parts = []
        if not self._is_between:
            parts.append(self._spliced(self._stretcher.finish()))
            self._end_piece()
        if self._splicer is not None:
            parts.append(self._splicer.finish())
        if self._piece == len(self.pacing.texts):
            parts.append(self._silence(self.pacing.silences[-1]))
        return np.concatenate(parts)

    def time(self, words: Sequence[Word]) -> None:
        """Note when words of the piece under way begin, in seconds of its own sound at speed 1; words that
        become known later may follow in further calls.
        """
        self._words = (*self._words, *words)
        start = self._start / self.sample_rate
        self._timed += (self._timed_word(word, start) for word in words)

    def words(self) -> tuple[Word, ...]:
        """Return the words timed since the last call, in seconds of the whole sound."""
        words, self._timed = self._timed, []
        return tuple(words)

    def cues(self) -> tuple[Cue, ...]:
        """Return the turns of the pieces that ended since the last call, without those that have no sound."""
        cues, self._cues = self._cues, []
        return tuple(cues)

    def whole(self, waves: Sequence[np.ndarray]) -> np.ndarray:
        """All of the sound at once. waves: (L,) samples of the first pieces, or of all."""
        parts = [self.add(wave, last_of_piece=index < len(waves) - 1) for index, wave in enumerate(waves)]
        return np.concatenate([*parts, self.finish()])

    def _between(self) -> np.ndarray:
        """The pause after the piece before, if it is due and another piece is known."""
        is_due = self._is_between and self._piece < len(self.pacing.texts)
        return self._pause() if is_due else np.zeros(0, np.float32)

    def _pause(self) -> np.ndarray:
        """The pause after the piece before, with the end of its sound."""
        assert self._splicer is not None, "another piece follows"
        pause, self._is_between = self.pacing.pause(self._piece - 1), False
        self._start = self._end = self._end + round(pause * self.sample_rate)
        return self._splicer.add(np.zeros(0, np.float32), last_of_piece=True, pause_seconds=pause)

    def _spliced(self, sound: np.ndarray) -> np.ndarray:
        """Final samples, after the silence at the start."""
        self._end += len(sound)
        self._levels.add(sound)
        if self._splicer is not None:
            sound = self._splicer.add(sound)
        sound, self._lead = np.concatenate([self._lead, sound]), np.zeros(0, np.float32)
        return sound

    def _end_piece(self) -> None:
        if self._end > self._start:
            start, text = self._start / self.sample_rate, self.pacing.texts[self._piece]
            words = tuple(self._timed_word(word, start) for word in self._words)
            cue = Cue(text, start, self._end / self.sample_rate, words, self._piece)
            self._cues += in_turns(cue, None if words else self._turn_ends(text, start))
        self._piece += 1
        self._words, self._levels = (), Levels(self.sample_rate)
        self._stretcher = Stretcher(self.sample_rate, self.pacing.speed)

    def _turn_ends(self, text: str, start: float) -> list[float] | None:
        """Seconds at which the turns of the piece under way end, but for the last; None for one turn."""
        turns = turn_texts(text)
        if len(turns) < 2:
            return None
        return [start + end for end in turn_ends(turns, self._levels.decibels())]

    def _timed_word(self, word: Word, start: float) -> Word:
        speed = self.pacing.speed
        end = None if word.end is None else start + word.end / speed
        return Word(word.text, start + word.start / speed, end)

    def _silence(self, seconds: float | None) -> np.ndarray:
        return np.zeros(round((seconds or 0) * self.sample_rate), np.float32)

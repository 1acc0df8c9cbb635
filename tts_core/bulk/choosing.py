"""Speak rows, judge them, speak rejected rows again with other seeds, and keep the best attempt of each."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tts_core.bulk.outcome import Outcome
from tts_core.bulk.rejection import Rejection, attempt_seed
from tts_core.bulk.rows import TextRow
from tts_core.bulk.speaking import RowSpeaker
from tts_core.judges.process import JudgeProcesses, Recording, Verdict

UNJUDGED = 64  # recordings that may wait for the judges before no new row is taken


@dataclass
class _Tried:
    """A row with its attempts so far. figures: figures of the best."""

    row: TextRow
    attempts: int = 0
    spoken: Outcome | None = None  # is being judged
    best: Outcome | None = None
    figures: dict[str, float] | None = None
    fault: str | None = None  # why the best has no figures


class ChoosingRowSpeaker:
    """A speaker that keeps the best attempt of each row.

    The result of a row depends on the row and its key only, not on the order of the judges' answers.
    """

    def __init__(self, speaker: RowSpeaker, judges: JudgeProcesses, rejection: Rejection):
        self.speaker, self.judges, self.rejection = speaker, judges, rejection
        self._tried: dict[str, _Tried] = {}  # by key: being spoken, judged, or waiting to be spoken again
        self._again: deque[tuple[TextRow, str]] = deque()
        self._more = True  # fresh rows

    def speak(self, rows: Iterable[tuple[TextRow, str]]) -> Iterator[Outcome]:
        """As RowSpeaker.speak; outcomes also have `attempts`, `judged`, `judges` and `accepted`."""
        self._more = True
        for ended in self.speaker.steps(self._rows(iter(rows))):
            for outcome in ended:
                yield from self._ended(outcome)
            for verdict in self.judges.verdicts(None if self._stuck() else 0):
                yield from self._judged(verdict)

    def _stuck(self) -> bool:
        """True if nothing can be spoken before the next verdict."""
        pending = self.judges.pending
        speaking_or_waiting = len(self._tried) - pending
        return pending > 0 and not speaking_or_waiting and (pending >= UNJUDGED or not self._more)

    def _rows(self, fresh: Iterator[tuple[TextRow, str]]) -> Iterator[tuple[TextRow, str] | None]:
        """Yield rows to speak, rejected rows first; None while all remaining rows wait for judges."""
        while self._more or self._tried:
            if self._again:
                yield self._again.popleft()
            elif not self._more or self.judges.pending >= UNJUDGED:
                yield None
            elif (pair := next(fresh, None)) is None:
                self._more = False
            else:
                self._tried[pair[1]] = _Tried(pair[0])
                yield pair

    def _ended(self, outcome: Outcome) -> Iterator[Outcome]:
        """Have a spoken row judged. One that failed has ended, unless an earlier attempt is there."""
        tried = self._tried[outcome.key]
        tried.attempts += 1
        if outcome.error is None:
            tried.spoken = outcome
            self.judges.begin(
                Recording(
                    outcome.key,
                    outcome.sound,
                    self.speaker.work.suffix,
                    tried.row.text,
                    self.speaker.requests.recording(tried.row),
                )
            )
        elif tried.best is None:
            del self._tried[outcome.key]
            yield outcome
        else:
            yield from self._next(outcome.key, tried)

    def _judged(self, verdict: Verdict) -> Iterator[Outcome]:
        tried, rank = self._tried[verdict.key], self.rejection.rank
        if tried.best is None or rank(verdict.figures) < rank(tried.figures):
            tried.best, tried.figures, tried.fault = tried.spoken, verdict.figures, verdict.error
        tried.spoken = None
        yield from self._next(verdict.key, tried)

    def _next(self, key: str, tried: _Tried) -> Iterator[Outcome]:
        """End a row that is accepted or has no attempts left; otherwise queue it again."""
        accepted = self.rejection.rank(tried.figures)[0] == 0
        if not accepted and tried.attempts <= self.rejection.retries:
            self._again.append((replace(tried.row, seed=attempt_seed(key, tried.attempts)), key))
            return
        assert tried.best is not None
        del self._tried[key]
        figures = tried.figures or {}
        fields = {
            "attempts": tried.attempts,
            "accepted": accepted,
            "judged": {name: round(figures[name], 6) for name in self.rejection.judges if name in figures},
            "judges": dict(self.rejection.judges),
        }
        if tried.fault is not None:
            fields["judge_error"] = tried.fault
        yield replace(tried.best, fields={**tried.best.fields, **fields})

"""Judging processes: fed, listened to, replaced when they die; the judges are stand-ins."""

import io
import os
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tts_core.errors import GenerationError, NotFoundError
from tts_core.judges.judging import Figures, Judge
from tts_core.judges.process import JudgeProcesses, Recording, Verdict
from tts_core.judges.rows import RecordingRow
from tts_core.processes import DEATHS

pytestmark = pytest.mark.rest


def loudness() -> list[Judge]:
    """A judge of the peak; it is killed by the text "die"."""

    def judge(row: RecordingRow, samples: np.ndarray) -> Figures:
        if row.text == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return {"peak": np.abs(samples).max(), "process": os.getpid()}

    return [judge]


def nothing() -> Sequence[Judge]:
    raise NotFoundError("judge: ears are not installed")


def recording(key: str, peak: float, text: str = "Hello.") -> Recording:
    file = io.BytesIO()
    soundfile.write(file, np.full(16000, peak), 16000, format="WAV", subtype="FLOAT")
    return Recording(key, file.getvalue(), ".wav", text)


def every(judges: JudgeProcesses) -> Iterator[Verdict]:
    while judges.pending:
        yield from judges.verdicts(None)


def test_recordings_are_judged_side_by_side() -> None:
    with closing(JudgeProcesses(loudness, 2)) as judges:
        assert judges.verdicts(0) == []
        for number in range(6):
            judges.begin(recording(f"k{number}", number / 8))
        assert judges.pending == 6
        found = {one.key: one.figures or {} for one in every(judges)}
        assert {key: one["peak"] for key, one in found.items()} == {f"k{n}": n / 8 for n in range(6)}
        assert len({one["process"] for one in found.values()} - {os.getpid()}) in (1, 2)


def test_a_bad_recording_costs_only_itself() -> None:
    with closing(JudgeProcesses(loudness, 1)) as judges:
        judges.begin(Recording("bad", b"no sound", ".wav", "Hello."))
        judges.begin(recording("dead", 0.5, "die"))
        judges.begin(recording("fine", 0.5))
        bad, dead, fine = every(judges)
    assert bad.figures is None
    assert "cannot be decoded" in str(bad.error)
    assert (dead.figures, dead.error) == (None, "the judge died (exit code -9)")
    assert fine.figures is not None


def test_judges_that_keep_dying_end_the_run() -> None:
    with closing(JudgeProcesses(loudness, 1)) as judges:
        for number in range(DEATHS):
            judges.begin(recording(f"k{number}", 0.5, "die"))
        with pytest.raises(GenerationError, match="the judge died"):
            list(every(judges))


def test_deaths_with_a_verdict_between_them_do_not() -> None:
    with closing(JudgeProcesses(loudness, 1)) as judges:
        for number in range(DEATHS):
            judges.begin(recording(f"dead{number}", 0.5, "die"))
            judges.begin(recording(f"fine{number}", 0.5))
        found = list(every(judges))
    assert [one.figures is None for one in found] == [True, False] * DEATHS


def test_a_judge_that_is_not_installed_is_said() -> None:
    with closing(JudgeProcesses(nothing, 1)) as judges:
        judges.begin(recording("k", 0.5))
        with pytest.raises(NotFoundError, match="ears are not installed"):
            list(every(judges))


def test_nothing_of_the_recordings_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a judge that was ended, nor of one that died."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with closing(JudgeProcesses(loudness, 2)) as judges:
        judges.begin(recording("dead", 0.5, "die"))
        judges.begin(recording("fine", 0.5))
        assert len([*every(judges)]) == 2
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("judge-")] == []

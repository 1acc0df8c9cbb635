"""Rows, sums and intervals."""

from pathlib import Path

import numpy as np
import pytest

from tts_core.audio.files import write_audio
from tts_core.errors import UsageError
from tts_core.judges import judging
from tts_core.judges.judging import Judged, Measure, judged, measures, summaries
from tts_core.judges.recognizers import Recognizer, recognizer
from tts_core.judges.rows import Row
from tts_core.judges.statistics import paired_interval, ratio_interval


def test_words_are_compared_as_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hearing = Recognizer("ears", lambda samples: ["it", "costs", "three", "dollars"])
    monkeypatch.setattr(judging, "recognizer", lambda whisper: hearing)
    write_audio(tmp_path / "a.wav", np.full(16000, 0.1, np.float32), 16000)
    words = measures()["words"]
    rows = [Row("a", tmp_path / "a.wav", "[S1] It costs $4."), Row("b", tmp_path / "b.wav", "Gone.")]
    rows.append(Row("c", tmp_path / "a.wav"))
    first, missing, silent = judged(rows, [words.build()])
    assert first.figures == {"seconds": 1.0, "words": 4, "word_errors": 1, "wer": 0.25}
    assert not missing.figures
    assert "b.wav" in str(missing.error)
    assert silent.figures == {"seconds": 1.0}
    [line] = summaries([first, missing, silent], [words])
    assert line == ("wer", "ears", 1, 0.25, 0.25, 0.25)


def test_the_word_error_rate_is_over_all_words() -> None:
    row = Row("a", Path("a"))
    found = [
        Judged(row, {"words": 9, "word_errors": 0, "wer": 0.0, "mos": 4.0}),
        Judged(row, {"words": 1, "word_errors": 1, "wer": 1.0, "mos": 2.0}),
        Judged(row, {}, "broken"),
    ]
    chosen = [
        Measure("ears", ("wer",), lambda: lambda row, samples: {}),
        Measure("taste", ("mos", "none"), lambda: lambda row, samples: {}),
    ]
    wer, mos = summaries(found, chosen)
    assert (wer.value, wer.rows) == (0.1, 2)
    assert (wer.low, wer.high) == (0, 1)
    assert (mos.value, mos.low, mos.high) == (3, 2, 4)


def test_intervals_cover_the_mean_in_nineteen_of_twenty_cases() -> None:
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(200):
        errors = rng.binomial(10, 0.2, size=60)
        low, high = ratio_interval(errors.tolist(), [10] * 60)
        covered += low <= 0.2 <= high
    # binomial(200, 0.95): 180 or fewer in one of 400 runs
    assert covered > 180


def test_a_paired_interval_is_narrower_for_like_rows() -> None:
    rng = np.random.default_rng(4)
    hard = rng.integers(0, 10, size=50)
    ours, theirs = ((hard + 1).tolist(), [20] * 50), (hard.tolist(), [20] * 50)
    assert paired_interval(ours, theirs) == pytest.approx((0.05, 0.05))


def test_whisper_needs_weights(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="neither model"):
        recognizer(tmp_path)

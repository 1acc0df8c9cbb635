"""Rows, sums and intervals."""

from pathlib import Path

import numpy as np
import pytest

from tts_core.audio.files import write_audio
from tts_core.errors import UsageError
from tts_core.judges import judging
from tts_core.judges.dnsmos import Scores
from tts_core.judges.judging import Judged, Measure, judged, measures, summaries
from tts_core.judges.rows import RecordingRow
from tts_core.judges.statistics import paired_interval, ratio_interval
from tts_core.judges.words import Recognizer, recognizer


def test_words_are_compared_as_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hearing = Recognizer("ears", lambda samples: ["it", "costs", "three", "dollars"])
    monkeypatch.setattr(judging, "recognizer", lambda whisper: hearing)
    write_audio(tmp_path / "a.wav", np.full(16000, 0.1, np.float32), 16000)
    words = measures()["words"]
    rows = [
        RecordingRow("a", tmp_path / "a.wav", "[S1] It costs $4."),
        RecordingRow("b", tmp_path / "b.wav", "Gone."),
    ]
    rows.append(RecordingRow("c", tmp_path / "a.wav"))
    first, missing, silent = judged(rows, [words.build()])
    assert first.figures == {"seconds": 1.0, "words": 4, "word_errors": 1, "wer": 0.25}
    assert not missing.figures
    assert "b.wav" in str(missing.error)
    assert silent.figures == {"seconds": 1.0}
    [line] = summaries([first, missing, silent], [words])
    assert line == ("wer", "ears", 1, 0.25, None, None)  # one recording has no interval


def test_more_errors_than_words_are_a_rate_above_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hearing = Recognizer("ears", lambda samples: ["yes", "and", "no", "more"])
    monkeypatch.setattr(judging, "recognizer", lambda whisper: hearing)
    write_audio(tmp_path / "a.wav", np.full(16000, 0.1, np.float32), 16000)
    [found] = judged([RecordingRow("a", tmp_path / "a.wav", "[S1] Yes.")], [measures()["words"].build()])
    assert found.figures["wer"] == 3


def test_a_text_without_words_has_a_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tag and a pause only: every word that is heard is wrong."""
    monkeypatch.setattr(judging, "recognizer", lambda whisper: Recognizer("ears", lambda samples: ["yes"]))
    write_audio(tmp_path / "a.wav", np.full(16000, 0.1, np.float32), 16000)
    [found] = judged(
        [RecordingRow("a", tmp_path / "a.wav", "[S1] [pause:1] ...")], [measures()["words"].build()]
    )
    assert (found.error, found.figures["words"], found.figures["wer"]) == (None, 0, 1.0)


def test_quality_is_of_samples_within_full_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ear:
        def __init__(self, path: Path):
            """No weights."""

        def score(self, samples: np.ndarray) -> Scores:
            return Scores(float(samples.min()), float(samples.max()), 0.0)

    monkeypatch.setattr(judging, "DnsMos", Ear)
    monkeypatch.setattr(judging.wheels, "content", lambda wheel: b"")
    figures = measures()["quality"].build()(RecordingRow("a", Path()), np.array([-3, 0.5, 2], np.float32))
    assert figures == {"dnsmos_speech": -1, "dnsmos_background": 1, "dnsmos_overall": 0}


def test_likeness_is_that_to_the_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is encoded once; a row without one has no likeness."""
    encoded: list[int] = []

    class Ear:
        def __init__(self, path: Path):
            """No weights."""

        def embed(self, samples: np.ndarray) -> np.ndarray:
            encoded.append(len(samples))
            return np.array([1, 0] if len(samples) == 100 else [0.6, 0.8])

    monkeypatch.setattr(judging, "VoiceEncoder", Ear)
    monkeypatch.setattr(judging.wheels, "content", lambda wheel: b"")
    write_audio(tmp_path / "ref.wav", np.full(200, 0.1, np.float32), 16000)
    judge, row = measures()["likeness"].build(), RecordingRow("a", Path(), None, tmp_path / "ref.wav")
    spoken = np.zeros(100, np.float32)
    assert [judge(row, spoken), judge(row, spoken)] == [{"likeness": 0.6}] * 2
    assert encoded.count(200) == 1
    assert judge(RecordingRow("b", Path()), spoken) == {}


def test_the_word_error_rate_is_over_all_words() -> None:
    row = RecordingRow("a", Path("a"))
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

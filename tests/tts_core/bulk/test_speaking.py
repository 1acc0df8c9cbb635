"""Rows in a running batch; the model is a stand-in."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import soundfile

from tests.tts_core.serving.talkers import RATE, SAMPLES, Chorus, Said, sound
from tts_core import models
from tts_core.bulk.outcome import Outcome
from tts_core.bulk.requests import BulkWork
from tts_core.bulk.rows import TextRow
from tts_core.bulk.speaking import RowSpeaker, codes_hash
from tts_core.errors import UsageError


class Source:
    """Checks texts; notes the options and prompts of each."""

    model, spec = "dia", models.MODELS["dia"]

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any], Any]] = []

    def request(self, text: str, options: dict[str, Any], prompt: Any) -> Said:
        self.asked.append((text, options, prompt))
        if not text.split():
            raise UsageError("text: empty")
        return Said(tuple(text.split()), options["seed"])


def speak(
    rows: Sequence[TextRow], places: int = 2, **changes: Any
) -> tuple[list[Outcome], list[str], Source]:
    log, source = list[str](), Source()
    work = BulkWork({"top_k": 5}, Path("voices"), ".wav", None, {"model": "talker"})
    work = BulkWork(**{**work.__dict__, **changes})
    speaker = RowSpeaker(cast(Any, source), lambda: Chorus(places, log), work)  # type: ignore[arg-type]
    return list(speaker.speak((row, f"key {row.id}") for row in rows)), log, source


def test_a_row_takes_the_place_of_one_that_ended(tmp_path: Path) -> None:
    rows = [
        TextRow(0, "a", "one two three", seed=1),
        TextRow(1, "b", "four", seed=2),
        TextRow(2, "c", "five six", seed=3),
    ]
    outcomes, log, source = speak(rows)
    assert [one.id for one in outcomes] == ["b", "a", "c"]
    assert log == [
        "join one", "join four", "step one four", "leave four",
        "join five", "step one five", "step one five", "leave one", "leave five",
    ]  # fmt: skip
    assert [options for _, options, _ in source.asked] == [{"top_k": 5, "seed": n} for n in (1, 2, 3)]
    first = outcomes[1]
    (tmp_path / "a.wav").write_bytes(first.sound)
    samples, rate = soundfile.read(tmp_path / "a.wav")
    assert (len(samples), rate) == (3 * SAMPLES, RATE)
    np.testing.assert_allclose(samples[:SAMPLES], sound("one"), atol=1 / 32767)
    assert {
        key: first.fields[key] for key in ("id", "text", "speaker", "seed", "model", "finish_reason")
    } == {
        "id": "a",
        "text": "one two three",
        "speaker": "default",
        "seed": 1,
        "model": "talker",
        "finish_reason": "stop",
    }
    assert first.fields["duration"] == 0.75
    assert first.fields["codes_sha256"] == codes_hash(np.array([[0, 1, 2]]))


def test_a_rows_options_replace_those_of_all() -> None:
    _, _, source = speak(
        [TextRow(0, "a", "x", seed=3, options={"top_k": 7, "speed": 1.1}), TextRow(1, "b", "y", seed=4)]
    )
    assert [options for _, options, _ in source.asked] == [
        {"top_k": 7, "speed": 1.1, "seed": 3},
        {"top_k": 5, "seed": 4},
    ]


def test_an_error_that_ends_the_batch_names_its_rows() -> None:
    speaker = RowSpeaker(
        cast(Any, Source()),
        lambda: Chorus(2, []),  # type: ignore[arg-type]
        BulkWork({}, Path("voices"), ".wav", None),
    )
    rows = [TextRow(0, "a", "x crash", seed=1), TextRow(1, "b", "y z w", seed=1)]
    found: list[Outcome] = []
    with pytest.raises(RuntimeError, match="crashed"):
        found.extend(speaker.speak((row, row.id) for row in rows))
    assert [(one.id, "crashed" in str(one.error)) for one in found] == [("a", True), ("b", True)]


class Stuck(Chorus):
    """A batch that does not close."""

    def close(self) -> None:
        super().close()
        raise RuntimeError("stuck")


def test_a_broken_batch_that_does_not_close_is_logged_and_the_next_one_speaks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log, work = list[str](), BulkWork({}, Path("voices"), ".wav", None, {"model": "talker"})
    speaker = RowSpeaker(cast(Any, Source()), lambda: Stuck(1, log), work)  # type: ignore[arg-type]
    rows = [TextRow(0, "a", "hoard", seed=1), TextRow(1, "b", "there", seed=2)]
    outcomes = list(speaker.speak((row, row.id) for row in rows))
    assert [one.error is None for one in outcomes] == [False, True]
    [record] = caplog.records
    assert record.getMessage() == "batch: the broken session does not close"
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "stuck"


def test_captions_in_the_format_that_was_asked_for() -> None:
    outcomes, _, _ = speak([TextRow(0, "a", "one", seed=1)], captions="vtt")
    assert str(outcomes[0].captions).startswith("WEBVTT")


def test_codes_of_other_shapes_have_other_hashes() -> None:
    codes = np.arange(6).reshape(2, 3)
    assert codes_hash(codes) == codes_hash(codes.astype(np.int32)) != codes_hash(codes.reshape(3, 2))

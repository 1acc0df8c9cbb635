"""Rejected rows are spoken again; model and judges are stand-ins."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.tts_core.serving.talkers import Chorus, Said
from tts_core import models
from tts_core.bulk import choosing
from tts_core.bulk.choosing import ChoosingRowSpeaker
from tts_core.bulk.outcome import Outcome
from tts_core.bulk.rejection import Condition, Rejection, attempt_seed
from tts_core.bulk.requests import BulkWork
from tts_core.bulk.rows import TextRow
from tts_core.bulk.speaking import RowSpeaker
from tts_core.errors import UsageError
from tts_core.judges.process import Recording, Verdict
from tts_core.serving.voices import VoiceStore

REJECTION = Rejection((Condition("wer", 1, 0.3),), 2, {"wer": "ears"})
Heard = Mapping[str, list[float | None]]


class Ears:
    """Judges that answer some calls late, in an order of their own.

    heard: word error rates of each row's attempts; None: the judge died.
    """

    def __init__(self, heard: Heard, order: Callable[[int], int], patience: int):
        self.left = {f"key {name}": list(rates) for name, rates in heard.items()}
        self.order, self.patience, self.calls = order, patience, 0
        self.held: list[Recording] = []
        self.begun: list[Recording] = []
        self.most = 0

    @property
    def pending(self) -> int:
        return len(self.held)

    def begin(self, recording: Recording) -> None:
        self.held.append(recording)
        self.begun.append(recording)
        self.most = max(self.most, len(self.held))

    def verdicts(self, patience: float | None) -> list[Verdict]:
        self.calls += 1
        if patience is None:
            assert self.held, "nobody would answer"
        elif self.calls % self.patience or not self.held:
            return []
        one = self.held.pop(self.order(len(self.held)))
        rate = self.left[one.key].pop(0)
        if rate is None:
            return [Verdict(one.key, None, "the judge died")]
        return [Verdict(one.key, {"wer": rate, "words": 3.0})]


class Source:
    """Takes every text; the seeds in `bad` cannot be spoken."""

    model, spec = "dia", models.MODELS["dia"]

    def __init__(self, bad: set[int]):
        self.bad, self.seeds = bad, dict[str, list[int]]()

    def request(self, text: str, options: dict[str, Any], prompt: Any) -> Said:
        self.seeds.setdefault(text, []).append(options["seed"])
        if options["seed"] in self.bad:
            raise UsageError("seed: bad")
        return Said(tuple(text.split()), options["seed"])


def row_speaker(source: Source, places: int) -> RowSpeaker:
    return RowSpeaker(
        cast(Any, source),
        lambda: Chorus(places, []),  # type: ignore[arg-type]
        BulkWork({}, Path("voices"), ".wav", None),
    )


def choose(
    heard: Heard,
    order: Callable[[int], int] = lambda count: 0,
    patience: int = 1,
    places: int = 2,
    bad: set[int] | None = None,
) -> tuple[dict[str, Outcome], Source, Ears]:
    rows = [TextRow(number, name, f"{name} text", seed=7) for number, name in enumerate(heard)]
    ears, source = Ears(heard, order, patience), Source(bad or set())
    chosen = ChoosingRowSpeaker(row_speaker(source, places), cast(Any, ears), REJECTION)
    outcomes = list(chosen.speak((row, f"key {row.id}") for row in rows))
    assert len(outcomes) == len({one.id for one in outcomes})
    assert not chosen._tried
    return {one.id: one for one in outcomes}, source, ears


def said(outcome: Outcome) -> tuple[int, bool, dict[str, float], int]:
    fields = outcome.fields
    return fields["attempts"], fields["accepted"], fields["judged"], fields["seed"]


HEARD: Heard = {
    "fine": [0.3],
    "second": [0.5, 0.1],
    "never": [0.6, 0.4, 0.5],
    "alike": [0.4, 0.4, 0.4],
}


@pytest.mark.parametrize("order", [lambda count: 0, lambda count: count - 1])
@pytest.mark.parametrize("patience", [1, 2, 7])
@pytest.mark.parametrize("places", [1, 3])
def test_the_best_is_kept_whenever_the_judges_answer(
    order: Callable[[int], int], patience: int, places: int
) -> None:
    found, source, _ = choose(HEARD, order, patience, places)
    again = {name: [attempt_seed(f"key {name}", attempt) for attempt in (1, 2)] for name in HEARD}
    assert said(found["fine"]) == (1, True, {"wer": 0.3}, 7)
    assert said(found["second"]) == (2, True, {"wer": 0.1}, again["second"][0])
    assert said(found["never"]) == (3, False, {"wer": 0.4}, again["never"][0])
    assert said(found["alike"]) == (3, False, {"wer": 0.4}, 7)
    assert source.seeds["never text"] == [7, *again["never"]]
    assert found["fine"].fields["judges"] == {"wer": "ears"}


def test_an_attempt_that_was_not_judged_is_the_worst() -> None:
    found, _, _ = choose({"late": [None, 0.9, 0.8], "never": [None, None, None]})
    assert said(found["late"])[:3] == (3, False, {"wer": 0.8})
    assert "judge_error" not in found["late"].fields
    assert said(found["never"])[:3] == (3, False, {})
    assert found["never"].fields["judge_error"] == "the judge died"


def test_an_attempt_that_cannot_be_spoken() -> None:
    second = attempt_seed("key a", 1)
    found, _, _ = choose({"a": [0.9, 0.5]}, bad={second})
    assert said(found["a"])[:3] == (3, False, {"wer": 0.5})
    found, _, ears = choose({"a": []}, bad={7})
    assert found["a"].error == "seed: bad"
    assert not ears.begun


def test_slow_judges_hold_new_rows_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "UNJUDGED", 3)
    found, _, ears = choose({f"r{number}": [0.0] for number in range(20)}, patience=1000)
    assert len(found) == 20
    assert ears.most <= 3 + 1


def test_judges_hear_the_sound_and_know_the_reference() -> None:
    ears = Ears({"a": [0.0], "b": [0.0]}, lambda count: 0, 1)
    speaker = row_speaker(Source(set()), 2)
    speaker.requests._prompt = cast(Any, lambda *reference: None)
    rows = [TextRow(0, "a", "one", seed=1, voice="anna"), TextRow(1, "b", "two", seed=1, ref_audio="x/b.wav")]
    list(
        ChoosingRowSpeaker(speaker, cast(Any, ears), REJECTION).speak((one, f"key {one.id}") for one in rows)
    )
    assert [one.reference for one in ears.begun] == [Path("voices/anna/1.wav"), Path("x/b.wav")]
    assert [(one.text, one.suffix, one.sound[:4]) for one in ears.begun] == [
        ("one", ".wav", b"RIFF"),
        ("two", ".wav", b"RIFF"),
    ]


def test_a_built_in_voice_has_no_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a recording is stored under its name, as the model does not use that."""
    monkeypatch.setattr(VoiceStore, "names", lambda own: ["vivian"])
    ears, source = Ears({"a": [0.0]}, lambda count: 0, 1), Source(set())
    source.model, source.spec = "qwen3", replace(models.MODELS["qwen3"], references=0, voices=("vivian",))
    speaker = row_speaker(source, 1)
    row = TextRow(0, "a", "one", seed=1, voice="vivian")
    list(ChoosingRowSpeaker(speaker, cast(Any, ears), REJECTION).speak([(row, "key a")]))
    assert [one.reference for one in ears.begun] == [None]

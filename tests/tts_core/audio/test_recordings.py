"""Recordings accepted as a voice: levels, lengths, and seconds for the words, at their bounds."""

from typing import Any

import numpy as np
import pytest

from tts_core.audio.recordings import check_recording, check_stored, loudest_db
from tts_core.errors import UsageError
from tts_core.prompt import Prompt

RATE = 8000


def tone(seconds: float, level: float = 0.5) -> np.ndarray:
    return (level * np.sin(np.arange(round(seconds * RATE)) / 5)).astype(np.float32)


def refusal(samples: np.ndarray, said: str | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        check_recording(samples, RATE, said, "prompt 2")
    return str(caught.value)


def test_silence() -> None:
    """Zeros, dither, and sound below -60 dB everywhere; a short loud part is enough."""
    assert refusal(np.zeros(4 * RATE, np.float32)) == (
        "prompt 2: the reference is silent, all zeros; give 5 to 10 s of speech"
    )
    dither = np.random.default_rng(0).uniform(-1, 1, 4 * RATE).astype(np.float32) / 2**15
    assert "the reference is silent, at most -95 dB" in refusal(dither)
    quiet = tone(4, level=0.9e-3 * 2**0.5)
    assert "at most -61 dB" in refusal(quiet)
    check_recording(quiet * np.float32(1.2), RATE, None, "prompt")
    check_recording(np.concatenate([dither, tone(0.3), dither]), RATE, None, "prompt")


def test_scale() -> None:
    """Integers' values as floating point are no recording, of any type."""
    for kind in (np.float32, np.float64):
        loud = (tone(4) * 20000).astype(kind)
        with pytest.raises(
            UsageError, match=r"^voice: its peak is 10000 at a full scale of 1; divide by 32768"
        ):
            Prompt.of(audio=loud, sample_rate=RATE).one.samples(RATE, "voice")
        with pytest.raises(UsageError, match=r"^sample: its peak is 10000"):
            check_stored(loud, RATE, None, "sample")
    with pytest.raises(UsageError, match=r"^prompt: its peak is 1e\+300"):
        Prompt.of(audio=tone(4).astype(np.float64) / 0.5 * 1e300).one.samples(RATE)
    assert Prompt.of(audio=tone(4) * 10).one.samples(RATE) is not None


def test_one_character() -> None:
    assert "transcript of 1 character, " in refusal(tone(4), "a")
    with pytest.raises(UsageError, match="transcript of 1 character in any language"):
        check_stored(tone(20), RATE, "a", "sample")


def test_length() -> None:
    assert refusal(tone(0.1), "eight words of a text that was said") == (
        "prompt 2: 0.1 s are too short for a voice; give 5 to 10 s of speech, 1 s at least"
    )
    assert "too short" in refusal(tone(1)[:-1])
    check_recording(tone(1), RATE, None, "prompt")
    check_recording(tone(0.1), RATE, None, "prompt", shortest=0)


@pytest.mark.parametrize(("count", "fits"), [(11, False), (12, True), (60, True), (120, True), (121, False)])
def test_words_of_four_seconds(count: int, fits: bool) -> None:
    """From 3 to 30 characters a second; tags and white space at ends are not said."""
    said = f" [S1]\n{'a' * count} [S2] "
    if fits:
        check_recording(tone(4), RATE, said, "prompt")
    else:
        assert refusal(tone(4), said) == (
            f"prompt 2: 4.0 s do not fit a transcript of {count} characters, {count / 4:.1f} per second; "
            "speech has 3 to 30; give exactly the words of the recording"
        )


@pytest.mark.parametrize("rate", [2.2, 4.3, 8])
def test_stored_voices_may_speak_any_language(rate: float) -> None:
    """Also where English is faster; a model that reads only English refuses them later."""
    said = "春天来了，河水慢慢地流过那座老磨坊。" * 2
    check_stored(tone(len(said) / rate), RATE, said, "sample")
    if rate < 3:
        assert "speech has 3 to 30" in refusal(tone(len(said) / rate), said)


@pytest.mark.parametrize(("said", "seconds"), [("Hi.", 20), ("太阳" * 40, 2), ("word " * 60, 4)])
def test_stored_voices_of_no_language(said: str, seconds: float) -> None:
    with pytest.raises(UsageError, match=f"^sample: {seconds}.0 s do not fit .* in any language; read aloud"):
        check_stored(tone(seconds), RATE, said, "sample")
    check_stored(tone(seconds), RATE, None, "sample")


def test_level_of_the_loudest_part() -> None:
    assert loudest_db(np.ones(RATE), RATE) == pytest.approx(0)
    assert loudest_db(tone(1, level=1), RATE) == pytest.approx(-3.01, abs=0.05)
    assert loudest_db(np.full(7, 0.1), RATE) == pytest.approx(-20)
    assert loudest_db(np.zeros(0), RATE) == float("-inf")


def test_every_model_reads_recordings_through_the_check() -> None:
    """At the recording's own rate; codes are not checked."""
    with pytest.raises(UsageError, match=r"^voice: 4\.0 s do not fit a transcript of 2 characters"):
        Prompt.of(audio=tone(4), text="No", sample_rate=RATE).one.samples(16_000, "voice")
    assert Prompt.of(codes=np.zeros((8, 1), np.int32), text="Any words at all.").one.samples(RATE) is None


@pytest.mark.parametrize("rate", [0, -5, 999, 1_000_001, 1e12, float("nan"), float("inf"), "24000"])
def test_rates_that_no_recording_has(rate) -> None:
    with pytest.raises(UsageError, match=r"prompt: sample_rate .* is not a rate of 1000 to 1000000 Hz"):
        Prompt.of(tone(3), sample_rate=rate)
    good_rates: tuple[Any, ...] = (1000, 1_000_000, np.int64(8000), 44100.0)
    for good in good_rates:
        assert Prompt.of(tone(3), sample_rate=good).one.sample_rate == good


@pytest.mark.parametrize("said", [5, b"words", ["words"]])
def test_a_transcript_is_text(said) -> None:
    with pytest.raises(UsageError, match=r"prompt: its transcript, .*, is not text"):
        Prompt.of(tone(3), said)

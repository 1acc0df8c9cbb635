"""Check that a recording can be a reference voice: its level, its length, and its length for its words."""

from __future__ import annotations

import re

import numpy as np

from tts_core.errors import UsageError
from tts_core.printable import counted
from tts_core.text.pace import read_seconds

SHORTEST = 1.0  # seconds
SILENT_DB = -60.0  # level of the loudest part, relative to a full-scale square wave; -90 is 16-bit dither
LOUDEST = 8.0  # peak; a few times full scale is a loud mix, the values of integers are 128 and more
PART = 0.1  # seconds of the part
SLOWEST, FASTEST = 3.0, 30.0  # characters of transcript per second of speech; English read aloud has about 15

_TAG = re.compile(r"\[\s*[Ss]\d+\s*\]")


def check_recording(
    samples: np.ndarray, sample_rate: int, transcript: str | None, where: str, *, shortest: float = SHORTEST
) -> None:
    """Raise UsageError for a recording out of scale, silent, too short, or unfit for its transcript.

    samples: (L,) finite.
    transcript: None is not checked; speaker tags do not count.
    where: its name in messages.
    shortest: seconds.
    """
    check_scale(samples, where)
    seconds, level = len(samples) / sample_rate, loudest_db(samples, sample_rate)
    if level < SILENT_DB:
        how = f"at most {level:.0f} dB" if samples.any() else "all zeros"
        raise UsageError(f"{where}: the reference is silent, {how}; give 5 to 10 s of speech")
    if seconds < shortest:
        raise UsageError(
            f"{where}: {seconds:.1f} s are too short for a voice; give 5 to 10 s of speech, "
            f"{shortest:g} s at least"
        )
    if transcript is None:
        return
    count = len(_said(transcript))
    if not SLOWEST * seconds <= count <= FASTEST * seconds:
        raise UsageError(
            f"{where}: {seconds:.1f} s do not fit a transcript of {counted(count, 'character')}, "
            f"{count / seconds:.1f} per second; speech has {SLOWEST:g} to {FASTEST:g}; give "
            "exactly the words of the recording"
        )


def check_scale(samples: np.ndarray, where: str) -> None:
    """Raise UsageError for samples of the scale of integers."""
    peak = float(np.abs(samples).max(initial=0))
    if peak > LOUDEST:
        raise UsageError(
            f"{where}: its peak is {peak:.6g} at a full scale of 1; divide by 32768 what was 16-bit integers"
        )


def check_stored(samples: np.ndarray, sample_rate: int, transcript: str | None, where: str) -> None:
    """Check a recording before a model is known: refuse a pace that fits no language. Models check again."""
    check_recording(samples, sample_rate, None, where)
    if transcript is None:
        return
    said, seconds = _said(transcript), len(samples) / sample_rate
    least, most = read_seconds(said)
    least, most = min(least, len(said) / FASTEST), max(most, len(said) / SLOWEST)
    characters = counted(len(said), "character")
    if not least <= seconds <= most:
        raise UsageError(
            f"{where}: {seconds:.1f} s do not fit a transcript of {characters} in any language; "
            f"read aloud it takes {least:.1f} to {most:.1f} s; give exactly the words of the recording"
        )


def _said(transcript: str) -> str:
    """Return a transcript without speaker tags, and with single spaces."""
    return " ".join(_TAG.sub(" ", transcript).split())


def loudest_db(samples: np.ndarray, sample_rate: int) -> float:
    """Level of the loudest part of PART seconds, 0 dB at a root mean square of 1; -inf for zeros."""
    size = max(1, min(round(PART * sample_rate), len(samples)))
    padded = np.pad(samples.astype(np.float64), (0, -len(samples) % size))
    power = np.square(padded).reshape(-1, size).mean(axis=1).max(initial=0)
    return float(10 * np.log10(power)) if power > 0 else float("-inf")

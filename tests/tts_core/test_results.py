"""Results of a generation, and the times of its stages."""

import dataclasses
import math
import time

import numpy as np
import pytest

from tts_core.prompt import Prompt
from tts_core.results import GenerationResult, Meter


def test_prompt_takes_audio_or_codes_but_not_both():
    audio, codes = np.zeros(4, np.float32), np.zeros((9, 2), np.int32)
    assert Prompt.of(text="hello", audio=audio).one.codes is None
    assert Prompt.of(text="hello", codes=codes).one.audio is None
    for wrong in ({}, {"audio": audio, "codes": codes}):
        with pytest.raises(ValueError, match="audio or codes, exactly one"):
            Prompt.of(text="hello", **wrong)


def test_result_lengths_and_immutability():
    result = GenerationResult(
        audio=np.zeros(8000, np.float32),
        sample_rate=16_000,
        codes=np.zeros((9, 25), np.int32),
        seed=1,
        finish_reason="stop",
        token_count=40,
        real_time_factor=2.0,
        time_to_first_audio=0.5,
        processing_time_seconds=1.0,
        peak_memory_usage=1,
    )
    assert result.samples == 8000
    assert result.audio_seconds == 0.5
    assert (result.segment_idx, result.is_final_chunk) == (0, True)
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.seed = 2  # pyright: ignore


def metered(meter: Meter, samples: int, *, place: int, last: bool = False):
    meter.add(samples)
    return meter.result(
        np.zeros(samples, np.float32),
        np.zeros((8, samples // 10), np.int32),
        seed=3,
        token_count=place,
        peak_bytes=5,
        segment_idx=place,
        finish_reason="stop" if last else None,
    )


def test_stages_and_times(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    meter = Meter(100, ("AR", "vocoder"))
    silent = metered(meter, 0, place=0)
    assert silent.real_time_factor == math.inf
    assert silent.time_to_first_audio == 0
    with meter.stage("vocoder"):
        now[0] += 2
    first = metered(meter, 50, place=1)
    with meter.stage("vocoder"):
        now[0] += 2
    last = metered(meter, 50, place=2, last=True)
    assert list(first.stage_seconds) == ["AR", "vocoder"]
    assert first.stage_seconds["AR"] == 0
    assert (first.stage_seconds["vocoder"], last.stage_seconds["vocoder"]) == (2, 4)
    assert last.processing_time_seconds == 4
    assert first.time_to_first_audio == last.time_to_first_audio == first.processing_time_seconds
    assert last.real_time_factor == last.processing_time_seconds  # of one second
    assert (first.is_final_chunk, last.is_final_chunk, last.finish_reason) == (False, True, "stop")
    assert (last.seed, last.token_count, last.peak_memory_usage, last.segment_idx) == (3, 2, 5, 2)

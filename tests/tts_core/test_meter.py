"""Times of a run with several stages."""

import math
import time

import numpy as np

from tts_core.results import Meter


def result(meter: Meter, samples: int, *, place: int, last: bool = False):
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


def test_stages_and_times():
    meter = Meter(100, ("AR", "vocoder"))
    silent = result(meter, 0, place=0)
    assert silent.real_time_factor == math.inf
    assert silent.time_to_first_audio == 0
    with meter.stage("vocoder"):
        time.sleep(0.002)
    first = result(meter, 50, place=1)
    with meter.stage("vocoder"):
        time.sleep(0.002)
    last = result(meter, 50, place=2, last=True)
    assert list(first.stage_seconds) == ["AR", "vocoder"]
    assert first.stage_seconds["AR"] == 0
    assert 0.002 <= first.stage_seconds["vocoder"] < last.stage_seconds["vocoder"]
    assert last.stage_seconds["vocoder"] <= last.processing_time_seconds
    assert first.time_to_first_audio == last.time_to_first_audio == first.processing_time_seconds
    assert last.real_time_factor == last.processing_time_seconds  # of one second
    assert (first.is_final_chunk, last.is_final_chunk, last.finish_reason) == (False, True, "stop")
    assert (last.seed, last.token_count, last.peak_memory_usage, last.segment_idx) == (3, 2, 5, 2)

"""What a run of a model with several stages took: times, memory and counts, as results tell them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import numpy as np

from tts_core.results import GenerationResult, real_time_factor


class StageMeter:
    """Counts from when it is made. stages: their names, in the order in which results tell them."""

    def __init__(self, sample_rate: int, stages: Sequence[str]):
        self.started, self.sample_rate = time.perf_counter(), sample_rate
        self.stage_seconds = dict.fromkeys(stages, 0.0)
        self.first_seconds, self.samples = 0.0, 0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the time inside the block, which must read its results from the device, for a stage."""
        entered = time.perf_counter()
        try:
            yield
        finally:
            self.stage_seconds[name] += time.perf_counter() - entered

    def result(
        self,
        audio: np.ndarray,
        codes: np.ndarray,
        *,
        seed: int | None,
        token_count: int,
        peak_bytes: int,
        segment_idx: int,
        finish_reason: Literal["stop", "length"] | None,
    ) -> GenerationResult:
        """The next part of a stream, with times as of now. audio: (L,), codes: (Q, T).

        finish_reason: None before the last part.
        """
        seconds = time.perf_counter() - self.started
        if len(audio):
            self.first_seconds = self.first_seconds or seconds
        self.samples += len(audio)
        return GenerationResult(
            audio=audio,
            sample_rate=self.sample_rate,
            codes=codes,
            seed=seed,
            finish_reason=finish_reason,
            token_count=token_count,
            real_time_factor=real_time_factor(seconds, self.samples, self.sample_rate),
            time_to_first_audio=self.first_seconds,
            processing_time_seconds=seconds,
            peak_memory_usage=peak_bytes,
            segment_idx=segment_idx,
            is_final_chunk=finish_reason is not None,
            stage_seconds=dict(self.stage_seconds),
        )

"""What a run took: times, memory and counts, as results tell them."""

from __future__ import annotations

import time

import numpy as np

from tts_core.dia.grid import DelayGrid
from tts_core.dia.request import Request
from tts_core.results import GenerationResult, real_time_factor


class Meter:
    """Counts from `started`, a reading of time.perf_counter."""

    def __init__(self, started: float, sample_rate: int):
        self.started, self.sample_rate = started, sample_rate
        self.seconds, self.first_seconds, self.samples = 0.0, 0.0, 0

    def add(self, samples: int) -> None:
        """Note that so many samples have just been decoded."""
        self.seconds = time.perf_counter() - self.started
        self.first_seconds = self.first_seconds or self.seconds
        self.samples += samples

    def result(
        self,
        request: Request,
        grid: DelayGrid,
        item: int,
        audio: np.ndarray,
        codes: np.ndarray,
        *,
        peak_bytes: int,
        segment_idx: int = 0,
        is_final_chunk: bool = True,
    ) -> GenerationResult:
        """Times as of the last `add`. audio: (L,) float32, codes: (Q, T) int32."""
        return GenerationResult(
            audio=audio,
            sample_rate=self.sample_rate,
            codes=codes,
            seed=request.seeds[item],
            finish_reason=grid.finish_reason(item) if is_final_chunk else None,
            token_count=grid.filled,
            real_time_factor=real_time_factor(self.seconds, self.samples, self.sample_rate),
            time_to_first_audio=self.first_seconds,
            processing_time_seconds=self.seconds,
            peak_memory_usage=peak_bytes,
            segment_idx=segment_idx,
            is_final_chunk=is_final_chunk,
        )

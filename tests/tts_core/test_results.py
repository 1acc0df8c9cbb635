import dataclasses

import numpy as np
import pytest

from tts_core.prompt import Prompt
from tts_core.results import GenerationResult


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

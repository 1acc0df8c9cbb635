"""MARS5's options: the original's defaults, ranges, and messages."""

from dataclasses import asdict

import pytest

from tts_core.mars5.options import Mars5Options


def test_defaults_are_the_originals():
    """Those of the original's configuration, under its names except cfg_scale, and ours."""
    assert asdict(Mars5Options()) == {
        "temperature": 0.7,
        "top_k": 200,
        "top_p": 0.2,
        "typical_p": 1.0,
        "freq_penalty": 3,
        "presence_penalty": 0.4,
        "rep_penalty_window": 80,
        "eos_penalty_factor": 1,
        "eos_penalty_decay": 0.5,
        "eos_estimated_gen_length_factor": 1.0,
        "generate_max_len_override": -1,
        "timesteps": 200,
        "x_0_temp": 0.7,
        "cfg_scale": 3,
        "q0_override_steps": 20,
        "trim_db": 27,
        "ref_audio_pad": 0,
        "max_prompt_dur": 12,
        "deep_clone": None,
        "as_written": False,
        "piece_seconds": 10,
        "max_seconds": None,
        "max_frames": None,
        "seed": None,
        "speed": 1.0,
        "noise": None,
        "draws": "per cell",
    }


@pytest.mark.parametrize(("override", "expected"), [(-1, 2000), (0, 2000), (1, 2000), (2, 2), (3000, 3000)])
def test_most_ids(override, expected):
    assert Mars5Options(generate_max_len_override=override).max_len == expected

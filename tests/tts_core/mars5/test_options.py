"""MARS5's options: the original's defaults, ranges, and messages."""

import math
from dataclasses import asdict

import pytest

from tts_core.errors import UsageError
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


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("temperature", -0.1, r"temperature: -0.1 is outside \[0, 100\]"),
        ("top_k", -1, "top_k: -1 is outside"),
        ("top_p", 1.1, r"top_p: 1.1 is outside \[0, 1\]"),
        ("typical_p", 0, r"typical_p: 0 is outside \(0, 1\]"),
        ("rep_penalty_window", 0, "rep_penalty_window: 0 is outside"),
        ("freq_penalty", math.inf, "freq_penalty: inf is outside"),
        ("timesteps", 0, r"timesteps: 0 is outside \[1, 1000\]"),
        ("x_0_temp", 0, r"x_0_temp: 0 is outside \[0.001, 100\]"),
        ("cfg_scale", -1, "cfg_scale: -1 is outside"),
        ("ref_audio_pad", 61, r"ref_audio_pad: 61 is outside \[0, 60\]"),
        ("trim_db", -3, r"trim_db: -3 is outside \(0, 1000\]"),
        ("draws", "per song", "draws: 'per song' is not known; use per cell or per class"),
        ("deep_clone", 1, "deep_clone: 1 is neither True nor False"),
        ("max_seconds", 0, "max_seconds: 0 is outside"),
        ("piece_seconds", 0.5, "piece_seconds: 0.5 is outside"),
    ],
)
def test_values_out_of_range(name, value, message):
    with pytest.raises(UsageError, match=message):
        Mars5Options(**{name: value})


def test_edges_are_in_range():
    assert Mars5Options(temperature=0, top_k=0, top_p=0, typical_p=1, cfg_scale=0).top_k == 0
    assert Mars5Options(freq_penalty=-1).freq_penalty == -1

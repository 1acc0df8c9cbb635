"""MARS5's settings, the end's penalty, and the growing sequence."""

import math
from dataclasses import asdict

import numpy as np
import pytest

from tests.tts_core.mars5.test_tokens import VOCABULARY
from tts_core.errors import UsageError
from tts_core.mars5.sampling import Mars5Settings, end_penalties
from tts_core.mars5.sequence import CodecSequence


def test_defaults_are_the_originals():
    assert asdict(Mars5Settings()) == {
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
        "nar_guidance_w": 3,
        "q0_override_steps": 20,
        "trim_db": 27,
        "ref_audio_pad": 0,
        "max_prompt_dur": 12,
    }


@pytest.mark.parametrize(("override", "expected"), [(-1, 2000), (0, 2000), (1, 2000), (2, 2), (3000, 3000)])
def test_most_ids(override, expected):
    assert Mars5Settings(generate_max_len_override=override).max_len == expected


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("temperature", -0.1, "temperature: -0.1 is outside 0 and more"),
        ("temperature", math.nan, "temperature: nan is not a number"),
        ("temperature", "1", "temperature: '1' is not a number"),
        ("temperature", True, "temperature: True is not a number"),
        ("top_k", 1.5, "top_k: 1.5 is not a whole number"),
        ("top_k", -1, "top_k: -1 is outside"),
        ("top_p", 1.1, "top_p: 1.1 is outside 0 .. 1"),
        ("typical_p", 0, "typical_p: must be above 0"),
        ("rep_penalty_window", 0, "rep_penalty_window: 0 is outside 1 and more"),
        ("freq_penalty", math.inf, "freq_penalty: inf is not a number"),
        ("timesteps", 0, "timesteps: 0 is outside 1 .. 1000"),
        ("timesteps", 20.0, "timesteps: 20.0 is not a whole number"),
        ("x_0_temp", 0, "x_0_temp: must be above 0"),
        ("nar_guidance_w", -1, "nar_guidance_w: -1 is outside"),
        ("ref_audio_pad", 61, "ref_audio_pad: 61 is outside 0 .. 60"),
        ("trim_db", -3, "trim_db: -3 is outside"),
    ],
)
def test_values_out_of_range(name, value, message):
    with pytest.raises(UsageError, match=message):
        Mars5Settings(**{name: value})


def test_edges_are_in_range():
    assert Mars5Settings(temperature=0, top_k=0, top_p=0, typical_p=1, nar_guidance_w=0).top_k == 0
    assert Mars5Settings(freq_penalty=-1).freq_penalty == -1


def test_end_penalties():
    settings = Mars5Settings(eos_penalty_factor=2, eos_penalty_decay=0.5)
    expected = np.array([4, 2 * 3**0.5, 2 * 2**0.5, 2, 2, 0, 0], np.float32)
    np.testing.assert_array_equal(end_penalties(settings, 4, 7), expected)
    assert end_penalties(settings, 0, 2).tolist() == [2, 0]
    assert end_penalties(Mars5Settings(eos_penalty_factor=0), 4, 3).tolist() == [0, 0, 0]
    assert end_penalties(settings, 4, 0).shape == (0,)


def test_sequence():
    prompt = VOCABULARY.shallow("thin")
    first = VOCABULARY.first_speech
    sequence = CodecSequence(prompt, VOCABULARY, len(prompt.tokens) + 3)
    assert (sequence.room, sequence.done, sequence.finish_reason) == (3, False, None)
    assert sequence.codes().tolist() == []
    for drawn in (first + 5, first + 6):
        sequence.accept(drawn)
    assert not sequence.done
    assert sequence.codes().tolist() == [6]  # the first generated one is lost, as upstream
    sequence.accept(first + 7)
    assert sequence.finish_reason == "length"
    assert sequence.ids.tolist() == [*prompt.tokens, first + 5, first + 6, first + 7]
    assert sequence.ids.dtype == np.int32


def test_sequence_that_ends():
    sequence = CodecSequence(VOCABULARY.shallow("thin"), VOCABULARY, 100)
    sequence.accept(VOCABULARY.first_speech)
    sequence.accept(VOCABULARY.end)
    assert (sequence.done, sequence.finish_reason) == (True, "stop")
    assert sequence.generated == [VOCABULARY.first_speech]


@pytest.mark.parametrize("max_len", [2, 4])
def test_no_room(max_len):
    sequence = CodecSequence(VOCABULARY.shallow("thin"), VOCABULARY, max_len)
    assert (sequence.room, sequence.done, sequence.finish_reason) == (0, True, "length")
    assert sequence.ids.tolist() == sequence.prompt.tokens.tolist()

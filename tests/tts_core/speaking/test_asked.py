"""Values of one text and of several: seeds, limits, random numbers, prompts."""

from typing import Any

import numpy as np
import pytest

from tts_core.dia.options import DiaOptions
from tts_core.errors import UsageError
from tts_core.metavoice.options import MetaVoiceOptions
from tts_core.models import NAMES
from tts_core.nn.noise import HostNoise
from tts_core.options import options_class
from tts_core.prompt import Prompt
from tts_core.speaking.given import frames_of, given_texts, read_once, seed_of


@pytest.mark.parametrize("model", NAMES)
def test_every_text_has_its_own_values(model):
    kind, noise = options_class(model), [HostNoise(5), HostNoise(6)]
    asked = given_texts(["a", "b"], kind(seed=[1, 2], max_frames=[3, 4], noise=noise, speed=1.5), None)
    own = [one.options for one in asked]
    assert [(one.seed, one.max_frames, one.speed, one.noise) for one in own] == [
        (1, 3, 1.5, noise[0]),
        (2, 4, 1.5, noise[1]),
    ]
    assert [(one.number, one.text, one.prompt) for one in asked] == [(1, "a", None), (2, "b", None)]
    assert [seed_of(one) for one in own] == [1, 2]
    assert [frames_of(one, 75.0) for one in own] == [3, 4]


def test_one_value_is_for_all_texts():
    """A random seed is shared, and another one in the next batch."""
    prompt = Prompt.of(codes=np.zeros((4, 5), np.int32), text="So.")
    first, second = given_texts(["a", "b"], DiaOptions(max_frames=7), prompt)
    assert first.options == second.options
    assert (first.options.max_frames, first.options.noise, first.prompt) == (7, None, prompt)
    assert first.options.seed != given_texts(["a"], DiaOptions(), prompt)[0].options.seed
    assert seed_of(DiaOptions()) != seed_of(DiaOptions())
    codes = np.zeros((4, 5), np.int32)
    assert all(one.prompt is codes for one in given_texts(["a", "b"], DiaOptions(), codes))
    path: Any = "voice.wav"  # which a model refuses
    assert [one.prompt for one in given_texts(["a", "b"], DiaOptions(), path)] == [path, path]
    limits = [
        one.options.max_frames
        for one in given_texts(["a", "b"], MetaVoiceOptions(max_frames=[9, None]), None)
    ]
    assert limits == [9, None]


@pytest.mark.parametrize(
    ("texts", "options", "prompts", "message"),
    [
        ("ab", {}, None, "texts: got one string; give a list of strings"),
        ([], {}, None, "texts: the list is empty"),
        (
            ["a"],
            {},
            [None, None],
            "prompts: 2 for 1 text; give one for all, or one per text, None for a text",
        ),
        (["a"] * 3, {"seed": [1, 2]}, None, "seed: 2 values for 3 texts; give one number, or one per text"),
        (["a"], {"max_frames": [1, 2]}, None, "max_frames: 2 values for 1 text; give one number"),
        (["a"], {"noise": []}, None, "noise: 0 sources for 1 text; give one, or one per text"),
    ],
)
def test_other_numbers_of_values_are_refused(texts, options, prompts, message):
    with pytest.raises(UsageError, match=f"^{message}"):
        given_texts(texts, DiaOptions(**options), prompts)


def test_one_text_has_one_value():
    with pytest.raises(UsageError, match=r"^seed: 2 values for 1 text;"):
        seed_of(DiaOptions(seed=[1, 2]))
    with pytest.raises(UsageError, match=r"^max_frames: 2 values for 1 text;"):
        frames_of(DiaOptions(max_frames=[1, 2]), 75.0)


@pytest.mark.parametrize("model", NAMES)
def test_a_limit_in_frames_or_seconds(model):
    kind = options_class(model)
    assert frames_of(kind(), 75.0) is None
    assert frames_of(kind(max_frames=3), 75.0) == 3
    assert frames_of(kind(max_seconds=1.01), 12.5) == 13
    assert frames_of(kind(max_seconds=2.2), 75.0) == 165
    assert frames_of(kind(max_seconds=2.2), 24000, 320) == 166  # 2.2 * 24000 is above 52800 in float64
    with pytest.raises(UsageError, match=r"^max_frames: max_seconds sets the same limit; give only one$"):
        frames_of(kind(max_frames=3, max_seconds=1), 75.0)


def test_a_prompt_is_read_once():
    """Told apart by identity: equal ones are read again."""
    read = []
    voice = read_once(lambda prompt: read.append(prompt) or len(read))
    one, other = np.zeros(3), np.zeros(3)
    assert [voice(prompt) for prompt in (one, other, one, None, None)] == [1, 2, 1, 3, 3]
    assert len(read) == 3

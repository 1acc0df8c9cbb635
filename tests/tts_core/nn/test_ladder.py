"""A model's ladder is found by the model's name, and inputs are drawn from the seed."""

import sys
from types import ModuleType

import numpy as np
import pytest

from tests.tiny.codecs import vocos_config
from tts_core.codecs.ladder import vocos_rung
from tts_core.errors import UsageError
from tts_core.nn.ladder import InputSources, Rung, ladder, sound
from tts_core.nn.layer_order import stage
from tts_core.nn.layers import Layers


def given(**made: np.ndarray) -> InputSources:
    return InputSources({"vocos": vocos_config()}, {}, 4, 0.1, 3, made)


def test_a_further_model_s_ladder_is_found(monkeypatch):
    rung = Rung("parrot", Layers, [stage("beak", "beak", "rows")], lambda given: {})
    module = ModuleType("tts_core.parrot.ladder")
    vars(module)["ladder"] = lambda given: [rung] * given.rows
    monkeypatch.setitem(sys.modules, "tts_core.parrot", ModuleType("tts_core.parrot"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert ladder("parrot", given()) == [rung] * 4


def test_the_vocoder_speaks_with_the_row_that_it_is_given():
    codes = np.arange(24, dtype=np.int32).reshape(1, 6, 4)
    read = vocos_rung(given(), 1).state(given(codes=codes))
    assert read["bandwidth"] == 1
    np.testing.assert_array_equal(read["codes"], codes[:, :4])  # the vocoder's codebooks
    with pytest.raises(UsageError, match="bandwidth_id 3; give 0 to 2"):
        vocos_rung(given(), 3)


def test_codes_are_the_codec_s_where_they_fit_and_drawn_where_not():
    codes = np.array([[[1, 2, 3], [4, 5, 6]]], np.int32)
    np.testing.assert_array_equal(given(codes=codes).codes(2, 7, 5), [[1, 2, 3, 1, 2], [4, 5, 6, 4, 5]])
    drawn = given(codes=codes).codes(2, 6, 5)
    assert drawn.shape == (2, 5)
    assert drawn.max() < 6
    assert given(codes=codes).codes(3, 7, 5).shape == (3, 5)


def test_sound_follows_its_seed():
    np.testing.assert_array_equal(sound(8000, 100, 1), sound(8000, 100, 1))
    assert not np.array_equal(sound(8000, 100, 1), sound(8000, 100, 2))
    assert np.abs(sound(8000, 4000, 1)).max() <= 1

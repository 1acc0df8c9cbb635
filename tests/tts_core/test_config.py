"""A configuration is read by its kind, as the class that its reader expects."""

import pytest

from tts_core.codecs.dac import DAC_44KHZ, DacConfig
from tts_core.codecs.encodec import EncodecConfig
from tts_core.config import config_of


def test_a_configuration_keeps_its_class():
    assert config_of({"dac": DAC_44KHZ}, "dac", DacConfig) is DAC_44KHZ


def test_another_class_is_refused():
    with pytest.raises(TypeError, match=r"^dac: expected a EncodecConfig, found DacConfig"):
        config_of({"dac": DAC_44KHZ}, "dac", EncodecConfig)


def test_a_missing_kind_is_refused():
    with pytest.raises(KeyError, match="vocos"):
        config_of({"dac": DAC_44KHZ}, "vocos", DacConfig)

"""The runs of a model are found by its name, and inputs are drawn from the seed."""

from types import ModuleType

import numpy as np
import pytest

from tests.tiny.networks import vocos_config
from tts_core.codecs.probes import vocos_probe
from tts_core.errors import UsageError
from tts_core.nn.probe import InputSources, passes, single_passes, sound


def sources(seed: int = 3) -> InputSources:
    return InputSources({"vocos": vocos_config()}, {}, 4, 0.1, seed)


def test_the_vocoder_speaks_with_the_row_that_it_is_given():
    said = []
    network = ModuleType("network")
    vars(network)["decode"] = lambda codes, bandwidth_id: said.append(bandwidth_id)
    framework = ModuleType("framework")
    vars(framework)["array"] = np.asarray
    vocos_probe(sources(), 1).run(network, framework)  # pyright: ignore[reportArgumentType]
    assert said == [1]
    with pytest.raises(UsageError, match="bandwidth_id 3; give 0 to 2"):
        vocos_probe(sources(), 3)


def test_what_is_drawn_follows_the_seed():
    for draw in (lambda seed: sources(seed).codes(2, 60, 50), lambda seed: sound(8000, 100, seed)):
        np.testing.assert_array_equal(draw(1), draw(1))
        assert (draw(1) != draw(2)).mean() > 0.9
    codes = sources().codes(2, 6, 5)
    assert codes.shape == (2, 5)
    assert codes.max() < 6
    assert np.abs(sound(8000, 4000, 1)).max() <= 1


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 11, 24])
def test_the_passes_read_every_row_once(rows):
    """Those of a cache, and of a ring, which takes single rows after the first."""
    for spans in (passes(rows), single_passes(rows)):
        assert [row for start, stop in spans for row in range(start, stop)] == list(range(rows))
        assert len(spans) <= 3
    assert all(stop - start == 1 for start, stop in single_passes(rows)[1:])

"""The inputs of `mlx-port verify`: all random numbers come from the given seed."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from converters.published import open_published
from tests.converters.folders import DAC_HF, V_0626_HF
from tests.tiny.mbd import mbd_tensors, published_content, write_published
from tests.tiny.metavoice_pipeline import bands_for
from tests.tiny.published_models import AR, FIRST, sources
from tts_core.nn.ladder import InputSources, ladder, sound

MADE = {  # replaces the oracle
    "codes": np.zeros((1, 9, 30), np.int32),
    "speaker": np.ones(16),
    "audio": np.zeros((1, 640)),
    "latents": np.zeros((1, 4, 2)),
}
DRAWN = {  # model → parts with random inputs; the others read their outputs
    "dia": {"codec"},
    "mars5": {"codec", "nar"},
    "metavoice": {"codec", "speaker_encoder", "mbd, band 0", "mbd, band 1"},
}


def given_for(model: str, folder: Path) -> InputSources:
    if model == "dia":
        published = open_published(V_0626_HF, codec=DAC_HF)
    elif model == "mars5":
        published = open_published(sources(model))
    else:
        bands = bands_for(open_published(sources(model)).parts["encodec"].config.hidden_size)
        file = write_published(folder / "mbd_comp_8.pt", published_content(bands, mbd_tensors(bands)))
        published = open_published([*sources(model), file], include=["mbd"])
    configs = {kind: part.config for kind, part in published.parts.items()}
    documents = {kind: part.documents for kind, part in published.parts.items()}
    return InputSources(configs, documents, 12, 0.06, 3, MADE)


@pytest.mark.skipif(not (AR.is_file() and FIRST.is_file()), reason=f"{AR} or {FIRST} is missing")
@pytest.mark.parametrize("model", DRAWN)
def test_what_is_drawn_follows_the_seed(model, tmp_path):
    given, changed = given_for(model, tmp_path), set()
    for rung in ladder(model, given):
        first, again, other = (rung.state(replace(given, seed=seed)) for seed in (3, 3, 4))
        for name, array in first.items():
            np.testing.assert_array_equal(again[name], array, err_msg=f"{rung.part} {name}")
        if any(not np.array_equal(other[name], array) for name, array in first.items()):
            changed.add(rung.part)
    assert changed == DRAWN[model]


def test_codes_that_do_not_fit_are_drawn_from_the_seed():
    first, again, other = (
        InputSources({}, {}, 12, 0.06, seed, MADE).codes(10, 1024, 7) for seed in (3, 3, 4)
    )
    assert first.shape == (10, 7)
    np.testing.assert_array_equal(again, first)
    assert (other != first).any()


def test_a_sound_follows_its_seed():
    np.testing.assert_array_equal(sound(16000, 4000, 5), sound(16000, 4000, 5))
    assert (sound(16000, 4000, 5) != sound(16000, 4000, 6)).mean() > 0.9

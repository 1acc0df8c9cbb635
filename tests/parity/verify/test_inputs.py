"""The inputs of `mlx-port verify`: texts and codes that belong to the model, random numbers of the seed."""

from dataclasses import replace

import numpy as np
import pytest

from tests.parity.verify.origins import inputs
from tests.tiny.published_models import AR, FIRST
from tts_core.errors import UsageError
from tts_core.nn.ladder import InputSources, ladder, sound
from tts_core.qwen3.config import MODES

MADE = {  # replaces the oracle
    "codes": np.zeros((1, 9, 30), np.int32),
    "speaker": np.ones(16),
    "audio": np.zeros((1, 640)),
    "latents": np.zeros((1, 4, 2)),
}
DRAWN = {  # parts with random inputs; the others read their outputs
    "dia, v_0626_hf": {"codec"},
    "mars5": {"codec", "nar"},
    "metavoice": {"codec", "speaker_encoder", "mbd, band 0", "mbd, band 1"},
}


@pytest.mark.skipif(not (AR.is_file() and FIRST.is_file()), reason=f"{AR} or {FIRST} is missing")
@pytest.mark.parametrize("name", DRAWN)
def test_what_is_drawn_follows_the_seed(name, origin):
    given, changed = inputs(origin(name).open(), 12, 0.06, 3, made=MADE), set()
    for rung in ladder(origin(name).model, given):
        first, again, other = (rung.state(replace(given, seed=seed)) for seed in (3, 3, 4))
        for at, array in first.items():
            np.testing.assert_array_equal(again[at], array, err_msg=f"{rung.part} {at}")
        if any(not np.array_equal(other[at], array) for at, array in first.items()):
            changed.add(rung.part)
    assert changed == DRAWN[name]


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


FED = [*(f"dia2, {name}" for name in ("v_main", "v_text")), *(f"qwen3, {mode}" for mode in MODES)]


@pytest.mark.rest
@pytest.mark.parametrize("name", FED)
def test_the_inputs_are_a_text_and_the_codecs_codes(name, origin):
    published, model = origin(name).open(), origin(name).model
    given, config = inputs(published, 20, 0.8, 0), published.parts[model].config
    books = 8 if model == "dia2" else config.n_codebooks
    given.made["codes"] = np.arange(books * 20).reshape(1, books, 20) % 7
    state = ladder(model, given)[2].state(given)
    if model == "dia2":
        tokens = state["tokens"]
        assert tokens.shape == (2, 20, 2 + config.n_streams)
        assert tokens[0, 0, 0] == config.text_bos_id
        assert len(np.unique(tokens[0, :, 0])) > 8
        assert (tokens[1, :, :2] == (config.text_zero_id, config.text_pad_id)).all()
        assert (tokens[0, 0, 2:] == config.audio_bos_id).all()
        assert (tokens[0, config.longest_delay :, 2:] < 7).all()
    else:
        assert state["text"].shape == (2, 20)
        assert state["text"][0, 0] == config.im_start_id
        assert len(np.unique(state["text"])) > 8
        np.testing.assert_array_equal(state["frames"][0], given.made["codes"][0])
    with pytest.raises(UsageError, match="--rows"):
        ladder(model, inputs(published, 5000, 0.8, 0))

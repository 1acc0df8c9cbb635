"""MetaVoice's language models on both sides: whole loops against the plain form, and codes by position."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.parity.device_reads import Forbidden, Watched
from tests.parity.metavoice import plain as plain
from tests.sides import PORT, YARDSTICK
from tests.tiny.metavoice import tokenizers
from tests.tiny.metavoice_lm import LanguageSide
from tests.tiny.networks import tiny
from tests.tolerance import EPS, FLOOR
from tests.tts_core.metavoice import sampling_rules as rules
from tests.tts_core.metavoice.sampling_rules import waiting_times
from tts_core.metavoice.config import END_OF_AUDIO
from tts_core.metavoice.inputs import (
    SECOND_STAGE_STEP,
    FirstStageSampling,
    MetaVoiceInputs,
    by_position,
    second_stage_rows,
)
from tts_core.nn.noise import HostNoise

TORCH, MLX, ORACLE = map(LanguageSide, ("torch", "mlx", "float64"))
EVERY_SIDE = pytest.mark.parametrize("side", [TORCH, MLX], ids=["torch_ref", "mlx_port"])
RANDOM = np.random.default_rng(5)
END_OF_TEXT = tokenizers().first_stage.end_of_text
TEXTS = ["Hello there.", "a", "the hello in there"]
PROMPTS = [tokenizers().first_stage.encode(text) for text in TEXTS]
SPEAKERS = RANDOM.normal(0, 1, (3, 10)).astype(np.float32)
LIMITS = [14, 20, 9]
SAFE = 1e-4  # of a margin: several times what float32 moves these logits
SETTINGS = {
    "defaults": FirstStageSampling(),
    "no guidance": FirstStageSampling(cfg_scale=1.0, top_p=0.9),
    "top k and p": FirstStageSampling(1.7, temperature=0.8, top_p=0.9, top_k=60),
    "every id": FirstStageSampling(temperature=1.3, top_p=None),
    "greedy": FirstStageSampling(top_p=None, top_k=1),
    "cold": FirstStageSampling(temperature=0.0),
    "slow": FirstStageSampling(2.5, 1.5, 0.9, 0.9, rule="slow"),
    "slow, only text": FirstStageSampling(1.0, 1.8, 1.0, None, 40, rule="slow"),
}


@cache
def first(side: LanguageSide) -> Any:
    return side.first_stage(tiny("metavoice"))


@cache
def second(side: LanguageSide) -> Any:
    return side.second_stage(tiny("metavoice_second_stage", 1))


@EVERY_SIDE
def test_cache_takes_the_room_that_is_asked_for(side: LanguageSide) -> None:
    network = first(side)
    rows, heard = network.new_cache(13), network.speakers(side.array(SPEAKERS[:1]))
    for length in (5, *(1,) * 8):
        network(side.array(np.ones((1, length), np.int32)), heard, rows)
        assert {layer.buffers[0].shape for layer in rows} == {(1, 3, 13, 12)}
    network(side.array(np.ones((1, 1), np.int32)), heard, rows)  # one more than requested
    assert rows[0].buffers[0].shape[2] >= 14


@EVERY_SIDE
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param(FirstStageSampling(top_p=0.45), [0.0] * 5 + [0.2] * 5, id="fast"),
        pytest.param(FirstStageSampling(top_p=0.45, rule="slow"), [0.2] * 5 + [0.0] * 5, id="slow"),
    ],
)
def test_the_settings_name_the_rule(
    side: LanguageSide, settings: FirstStageSampling, expected: list[float]
) -> None:
    """Of ten equal ids the fast rule keeps the last five, the slow one the first five."""
    got = side.probabilities(np.zeros((1, 10), np.float32), settings)
    np.testing.assert_allclose(got, [expected], rtol=FLOOR * EPS)  # a softmax of equal logits


@cache
def expected(name: str, item: int) -> plain.Plain:
    import torch

    with torch.inference_mode():
        return plain.generate(
            first(ORACLE),
            PROMPTS[item],
            SPEAKERS[item],
            HostNoise(item),
            SETTINGS[name],
            LIMITS[item],
            END_OF_TEXT,
        )


def generate(
    side: LanguageSide,
    items: list[int],
    sampling: FirstStageSampling,
    *,
    limits: list[int] | None = None,
    end: int = END_OF_AUDIO,
) -> list[np.ndarray]:
    texts = [MetaVoiceInputs(PROMPTS[item], SPEAKERS[item], sampling, HostNoise(item)) for item in items]
    limits = limits or [LIMITS[item] for item in items]
    return side.speak(first(side), texts, limits, end_of_text=END_OF_TEXT, end=end)


@EVERY_SIDE
@pytest.mark.parametrize("name", SETTINGS)
def test_slots_are_the_plain_form(side: LanguageSide, name: str) -> None:
    """One by one and with others of other lengths, in any order."""
    golden = [expected(name, item) for item in range(3)]
    for one in golden:
        assert one.margin > SAFE, f"a near tie of {one.margin:.1e}: choose another seed"
    for items in ([0], [2, 0, 1]):
        made = generate(side, items, SETTINGS[name])
        for item, ids in zip(items, made, strict=True):
            assert ids.dtype == np.int32
            np.testing.assert_array_equal(ids, golden[item].ids)


def test_the_settings_differ() -> None:
    """The settings of the test above give different codes."""
    every = [tuple(expected(name, item).ids.tobytes() for item in range(3)) for name in SETTINGS]
    assert len(set(every)) == len(SETTINGS) - 1  # cold and greedy are the same


@EVERY_SIDE
def test_a_text_ends_with_its_end_and_leaves_its_neighbours_alone(side: LanguageSide) -> None:
    """Also at its first id, where upstream fails."""
    golden = expected("defaults", 0).ids
    start = len(PROMPTS[0])
    for place in (0, 1, 6):
        end = int(golden[start + place])
        made = generate(side, [0, 1], SETTINGS["defaults"], end=end)
        stop = start + list(golden[start:]).index(end) + 1
        np.testing.assert_array_equal(made[0], golden[:stop])
        other = expected("defaults", 1).ids
        assert end not in other[len(PROMPTS[1]) :]
        np.testing.assert_array_equal(made[1], other)


@EVERY_SIDE
def test_one_id_and_the_last_position(side: LanguageSide) -> None:
    [made] = generate(side, [0], SETTINGS["defaults"], limits=[1])
    np.testing.assert_array_equal(made, expected("defaults", 0).ids[: len(PROMPTS[0]) + 1])
    room = 60 - len(PROMPTS[1])
    [made] = generate(side, [1], SETTINGS["greedy"], limits=[room])
    assert len(made) == 60


@pytest.mark.parametrize("name", ["defaults", "greedy", "slow"])
@EVERY_SIDE
def test_one_read_from_the_device_a_step(
    side: LanguageSide, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate(side, [0], SETTINGS[name], limits=[2])  # work done only once
    old = PORT if side is MLX else YARDSTICK
    batch, read = side.module("batch"), []
    with Watched(batch, read.append, "finish_read"), Forbidden(old, monkeypatch, batch):
        made = generate(side, [0, 1], SETTINGS[name], limits=[5, 8])
    assert len(read) == max(len(ids) - len(PROMPTS[item]) for item, ids in enumerate(made))
    assert {each.shape for each in read} == {(2,), (1,)}  # texts that are there


@EVERY_SIDE
@pytest.mark.parametrize("frames", [25, 60], ids=["fits", "cut"])
def test_codes_by_position(side: LanguageSide, frames: int) -> None:
    """Codes are drawn at their positions; a drawn padding is replaced by the best code."""
    text = tokenizers().second_stage.encode(TEXTS[0])
    codes = np.random.default_rng(frames).integers(0, 1024, (2, frames)).astype(np.int32)
    weights = tiny("metavoice_second_stage", 1)
    weights.tensors["lm_heads.1.weight"][1024] *= 40  # padding is drawn at half of the positions
    noise, fill = HostNoise(4), side.module("metavoice.codes").fill_codebooks
    own = fill(side.second_stage(weights), text, codes, SPEAKERS[0], noise)
    rows = second_stage_rows(text, codes, 40)
    kept = min(frames, 40 - len(text))
    assert own.shape == (5, kept)
    assert own.dtype == np.int32
    np.testing.assert_array_equal(own[:2], by_position(rows, len(text), frames))
    logits = ORACLE.predict(ORACLE.second_stage(weights), rows[None], SPEAKERS[:1])[0]
    logits = logits[:, len(text) : len(text) + kept]
    probs = rules.probabilities_slow(logits, 1.0, None, 200)
    drawn = rules.race(probs, waiting_times(noise, SECOND_STAGE_STEP, probs.shape))
    assert (drawn == 1024).any()
    np.testing.assert_array_equal(own[2:], np.where(drawn == 1024, logits[..., :1024].argmax(axis=-1), drawn))


@EVERY_SIDE
def test_codes_as_upstream(side: LanguageSide) -> None:
    """Every position is drawn, and codes are found by value: random weights shift whole codebooks."""
    text = tokenizers().second_stage.encode(TEXTS[0])
    codes = RANDOM.integers(0, 1024, (2, 9)).astype(np.int32)
    noise = HostNoise(4)
    own = side.fill_codebooks_as_upstream(second(side), text, codes, SPEAKERS[0], noise)
    rows = second_stage_rows(text, codes, 40)
    logits = ORACLE.predict(second(ORACLE), rows[None], SPEAKERS[:1])[0]
    probs = rules.probabilities_slow(logits, 1.0, None, 200)
    drawn = rules.race(probs, waiting_times(noise, SECOND_STAGE_STEP, probs.shape))
    np.testing.assert_array_equal(own[2:], [row[row < 1024][:9] for row in drawn])
    np.testing.assert_array_equal(own[:2], codes)

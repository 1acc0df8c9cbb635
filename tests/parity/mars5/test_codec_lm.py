"""MARS5's autoregressive network, MLX against PyTorch: its ring of keys, and the whole loop."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.parity.mars5 import plain_codec_lm as plain
from tests.sides import ORACLE, PORT, YARDSTICK, Side
from tests.tiny.inputs import normal
from tests.tiny.mars5_ar import VOCABULARY, deep_prompt, reference, sequence_of
from tests.tiny.mars5_draws import extend, probabilities
from tests.tiny.networks import ar_config, tiny
from tests.tolerance import EPS, FACTOR
from torch_ref.limits import Backend, enforce
from tts_core.errors import GenerationError
from tts_core.mars5.config import CodecLMConfig
from tts_core.mars5.options import Mars5Options
from tts_core.mars5.tokens import CodecPrompt
from tts_core.nn.noise import HostNoise

CONFIG = ar_config()
NARROW = ar_config(sliding_window=16)
BOTH = pytest.mark.parametrize("side", [YARDSTICK, PORT], ids=["torch_ref", "mlx_port"])
WINDOWS = pytest.mark.parametrize("config", [CONFIG, NARROW], ids=["window 3000", "window 16"])
SETTINGS = {
    "defaults": Mars5Options(),
    "wide": Mars5Options(temperature=1.2, top_k=0, top_p=1.0),
    "every filter": Mars5Options(temperature=1.1, top_k=60, top_p=0.9, typical_p=0.8, rep_penalty_window=9),
    "greedy": Mars5Options(temperature=0.0, freq_penalty=0.5),
}


@cache
def network(side: Side, config: CodecLMConfig = CONFIG, dtype: str | None = None) -> Any:
    return side.network("mars5", tiny(config, seed=3), dtype)


@BOTH
@pytest.mark.parametrize("capacity", [1, 5, 8, 40])
@pytest.mark.parametrize("first", [1, 4, 5, 6, 8, 21])
def test_ring(side: Side, first: int, capacity: int) -> None:
    """A row attends to all rows in the ring: the last ones, itself included, in any order."""
    window, total = 8, first + 12
    ring = side.module("layers.cache").RingCache(window, capacity)
    assert ring.capacity == min(window, capacity)
    every = normal(2, 2, 1, 2, total, 3)
    keys, values = ring.extend(*(side.array(rows[:, :, :first]) for rows in every))
    np.testing.assert_array_equal(side.numpy(keys), every[0, :, :, :first])
    np.testing.assert_array_equal(side.numpy(values), every[1, :, :, :first])
    for row in range(first, total):
        seen = ring.extend(*(side.array(rows[:, :, row : row + 1]) for rows in every))
        assert ring.length == row + 1
        assert ring.rule(1) == (False, None)
        wanted = every[:, :, :, max(0, row + 1 - ring.capacity) : row + 1]
        for got, expected in zip(seen, wanted, strict=True):
            rows = side.numpy(got)[0, 0]
            assert sorted(map(tuple, rows)) == sorted(map(tuple, expected[0, 0]))
    with pytest.raises(ValueError, match="2 rows after the first call"):
        ring.extend(*(side.array(rows[:, :, :2]) for rows in every))


@BOTH
@pytest.mark.parametrize("rows", [1, 8, 9, 10, 30])
def test_band(side: Side, rows: int) -> None:
    """In the first call row i attends to key j if i - window <= j <= i."""
    ring = side.module("layers.cache").RingCache(8, 40)
    ring.extend(side.array(normal(1, 1, 1, rows, 2)), side.array(normal(2, 1, 1, rows, 2)))
    causal, mask = ring.rule(rows)
    place = np.arange(rows)
    expected = (place[:, None] - 8 <= place) & (place <= place[:, None])
    if mask is not None:
        assert not causal
        np.testing.assert_array_equal(side.numpy(mask), expected)
    else:
        assert causal == (rows > 1)
        np.testing.assert_array_equal(np.tril(np.ones((rows, rows), bool)), expected)


def run_of(side: Side, name: str, prompt: CodecPrompt, codes: np.ndarray, config: CodecLMConfig) -> list[int]:
    """Ids of a side's loop, the end included."""
    sequence = sequence_of(prompt, 25)
    steps = extend(side, network(side, config), codes, sequence, SETTINGS[name], HostNoise(11))
    for count, grown in enumerate(steps, 1):
        assert grown is sequence
        assert len(sequence.generated) + sequence.ended == count, "one id a time"
    assert sequence.done
    return [*sequence.generated, *[VOCABULARY.end] * sequence.ended]


@WINDOWS
@pytest.mark.parametrize("deep", [False, True], ids=["shallow", "deep"])
@pytest.mark.parametrize("name", SETTINGS)
def test_loop(name: str, deep: bool, config: CodecLMConfig) -> None:
    """Both sides draw what the plain form draws: no cache, float64, filters id by id.

    After the window the plain form, which has no ring, sees one position more: there the sides are compared.
    """
    codes = reference(20, config)
    prompt = deep_prompt(codes) if deep else VOCABULARY.shallow("Then it thins.")
    runs = [run_of(side, name, prompt, codes, config) for side in (YARDSTICK, PORT)]
    assert runs[0] == runs[1]
    assert len(set(runs[0])) > 4
    if config is CONFIG:
        truth = plain.generate(
            network(ORACLE, config), codes, sequence_of(prompt, 25), SETTINGS[name], HostNoise(11)
        )
        assert truth.margin > 1e-7, "a number on the edge of an id: choose another seed"
        assert runs[0] == truth.ids


@BOTH
def test_what_a_draw_is_made_from(side: Side) -> None:
    """With all logits 0 only the penalties count: on repeats within the window from the third draw on, and on
    the end up to the expected length.
    """
    codes, prompt = reference(10, CONFIG), VOCABULARY.shallow("Thin.", length_factor=1.2)
    settings = Mars5Options(temperature=1, top_k=0, top_p=1, rep_penalty_window=3, eos_penalty_factor=2)
    silent = tiny(CONFIG)
    silent.tensors["ar.output.weight"] *= 0
    quiet = side.network("mars5", silent)
    seen: list[np.ndarray] = []
    first = VOCABULARY.first_speech
    drawn = [first, first + 1, first + 1, first + 2, first, first, first + 3, first + 4, first]

    def choose(draw: Any, uniform: Any) -> Any:
        seen.append(probabilities(side, draw))
        return side.array(np.array([drawn[len(seen) - 1]], np.int64))

    sequence = sequence_of(prompt, len(drawn))
    for _ in extend(side, quiet, codes, sequence, settings, HostNoise(1), choose=choose):
        pass
    assert prompt.expected_tokens == 6
    for count, probs in enumerate(seen):
        logits = np.zeros(VOCABULARY.size)
        expected = plain.distribution(
            logits, drawn[:count], prompt.expected_tokens, settings, VOCABULARY.lowest, VOCABULARY.end
        )
        # exp turns an error of a logarithm, of some units in its last place, into one of the number's part
        rounding = FACTOR * EPS * np.abs(np.log(expected[expected > 0])).max()
        np.testing.assert_allclose(probs, expected, rtol=rounding, atol=0, err_msg=f"draw {count}")


@BOTH
def test_the_end_stops_the_loop(side: Side) -> None:
    """A certain end: it is not part of the ids, and no id is drawn after it."""
    codes, sequence = reference(10, CONFIG), sequence_of(VOCABULARY.shallow("Thin."), 12)
    rules, drawn = side.module("sampling"), []

    def choose(draw: Any, uniform: Any) -> Any:
        drawn.append(1)
        ids = rules.inverse(draw, uniform)
        return ids * 0 + VOCABULARY.end if len(drawn) == 4 else ids

    for _ in extend(side, network(side), codes, sequence, Mars5Options(), HostNoise(1), choose=choose):
        pass
    assert (len(sequence.generated), sequence.finish_reason) == (3, "stop")
    assert VOCABULARY.end not in sequence.ids


@BOTH
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("drawn", [0, 3])
def test_logits_that_are_not_finite_are_named(side: Side, dtype: str, drawn: int) -> None:
    """With the dtype of the weights, and the id that could not be drawn."""
    codes, sequence = reference(10, CONFIG), sequence_of(VOCABULARY.shallow("Thin."), 12)
    weights = tiny(CONFIG, seed=3)
    first = VOCABULARY.first_speech
    weights.tensors["embed.weight"][first] = np.nan  # a row that only the drawn id reads
    if not drawn:
        weights.tensors["ar.output.weight"] *= np.nan
    broken = side.network("mars5", weights, dtype)
    ids = iter([first + 1] * (drawn - 1) + [first] * 12)

    def choose(draw: Any, uniform: Any) -> Any:
        return side.array(np.array([next(ids)], np.int64))

    said = rf"^generation: logits are NaN or infinite in {dtype} \(text 1, row {drawn}\); "
    with pytest.raises(GenerationError, match=said):
        for _ in extend(side, broken, codes, sequence, Mars5Options(), HostNoise(1), choose=choose):
            pass
    assert len(sequence.generated) == drawn


SOME = [Backend("mps", *version) for version in (("2.11.0", "14.5"), ("2.12.1", "15.0"), ("2.15.0", "26.2"))]


@WINDOWS
@pytest.mark.parametrize("backend", SOME, ids=str)
def test_under_the_rules_of_mps(backend: Backend, config: CodecLMConfig) -> None:
    codes = reference(20, config)
    with enforce(backend):
        limited = run_of(YARDSTICK, "every filter", deep_prompt(codes), codes, config)
    assert limited == run_of(YARDSTICK, "every filter", deep_prompt(codes), codes, config)

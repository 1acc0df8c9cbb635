"""Windows of several texts in one call of the codec, on both sides: equal to one by one up to rounding.

On a CPU, where torch rounds a call of several windows differently, each is a call of its own.
"""

from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.sides import ORACLE, YARDSTICK, Side
from tests.tiny.dia import compose
from tests.tiny.dia_served import decoded
from tests.tiny.networks import dia_config, tiny
from tests.tolerance import assert_within
from tts_core.codecs import dac_calls
from tts_core.codecs.dac_calls import Passage
from tts_core.codecs.policy import CodecPolicy
from tts_core.results import GenerationResult

POLICY = CodecPolicy(64, 4)


@pytest.fixture
def fed(monkeypatch: pytest.MonkeyPatch, side: Side) -> list[tuple[int, int]]:
    """Rows and frames of every call. Several windows share one, as on a GPU."""
    monkeypatch.setattr(dac_calls, "ONE_BY_ONE", ())
    engine = pipeline(side).engine
    owner, name = engine.codec, "decode_whole"
    decode, seen = getattr(owner, name), []

    def watched(codes: Any) -> Any:
        seen.append((codes.shape[0], codes.shape[2]))
        return decode(codes)

    monkeypatch.setattr(engine.codec, "policy", POLICY)
    monkeypatch.setattr(owner, name, watched)
    return seen


@cache
def pipeline(side: Side) -> Any:
    config = dia_config(positions=400, text_positions=300)
    return compose(side, tiny(config, seed=3, eos=1.3), tiny("dac"))


def said(side: Side) -> list[GenerationResult]:
    texts = ["[S1] One, two.", "[S2] a", "[S1] Lorem ipsum."]
    return pipeline(side).generate_batch(texts, max_frames=30, seed=1)


def codes(seed: int, frames: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 60, (4, frames)).astype(np.int32)


def test_passages_together_equal_those_alone(side: Side, fed: list[tuple[int, int]]) -> None:
    cuts = list(POLICY.decode_cuts(50))
    passages = [Passage(codes(seed, 50), *cut) for seed in range(4) for cut in cuts]
    passages += [Passage(codes(7, 9), 0, 9), Passage(codes(8, 9), 9, 9)]
    together = decoded(pipeline(side).engine, passages)
    assert max(rows for rows, _ in fed) == 4
    known, truth = (
        [decoded(pipeline(other).engine, [passage])[0] for passage in passages]
        for other in (YARDSTICK, ORACLE)
    )
    assert [len(one) for one in together] == [len(one) for one in truth]
    assert_equal(side, together, known, truth)


def test_on_a_cpu_neighbors_change_no_bit(side: Side) -> None:
    engine = pipeline(side).engine
    passages = [Passage(codes(seed, 50), 4, 12) for seed in range(3)]
    for one, passage in zip(decoded(engine, passages), passages, strict=True):
        np.testing.assert_array_equal(one, decoded(engine, [passage])[0])


def test_a_batch_decodes_what_ends_together(
    side: Side, fed: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    together = said(side)
    assert max(rows for rows, _ in fed) > 1
    fed.clear()
    monkeypatch.setattr(dac_calls, "ONE_BY_ONE", (pipeline(side).engine.host.backend,))
    alone = said(side)
    assert {rows for rows, _ in fed} == {1}
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_array_equal(one.codes, other.codes)
    assert_equal(side, *([one.audio for one in made] for made in (together, alone, said(ORACLE))))


def assert_equal(
    side: Side, together: list[np.ndarray], alone: list[np.ndarray], truth: list[np.ndarray]
) -> None:
    known = np.concatenate(truth).astype(np.float64)
    assert_within(np.concatenate(together), np.concatenate(alone), known, f"{side.kind}: together")

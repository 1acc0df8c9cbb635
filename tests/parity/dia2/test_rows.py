"""A text's row does not depend on the batch: draws from the same history, together and one by one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import pytest

from tests.golden.dia2_bench import Dia2Side, build
from tests.tiny.dia2_texts import GivenText
from tests.tiny.networks import other_config, tiny
from tts_core.dia2.inputs import Dia2Choice, Dia2Sampling
from tts_core.nn.noise import HostNoise

pytestmark = pytest.mark.rest

CONFIG = other_config()
TEXTS, STEPS = 8, 60
SAMPLING = Dia2Sampling(Dia2Choice(2.0, 9, 0.6, 2), Dia2Choice(2.0, 9, 0.8, 9))
NEAR = 1e-4  # distance of two scores that float32 sums of another order may exchange; they are of size 1 to 9
IDS = np.random.default_rng(3).integers(0, 30, (TEXTS, STEPS, 2 + CONFIG.n_streams)).astype(np.int32)


@dataclass
class Draws:
    """ids: (texts, steps, 1 + Q), actions first.  scores: that each draw compared, in order."""

    ids: np.ndarray
    scores: list[np.ndarray]


@contextmanager
def noted(side: Dia2Side, scores: list[np.ndarray]) -> Iterator[None]:
    """Note the scores of all draws: logits of the candidates with their Gumbel numbers."""
    draws = side.module("steps.dia2.drawing" if side.kind == "mlx" else "dia2.decoder")
    sampling = side.module("sampling")

    def choose(logits: Any, table: Any, uniform: Any, sampler: Any, **inputs: Any) -> Any:
        kept = side.numpy(sampling.score_rows(logits, table, sampler, **inputs).scores)
        scores.append(kept - np.log(-np.log(side.numpy(uniform))))
        return sampling.draw_rows(logits, table, uniform, sampler, **inputs)

    with mock.patch.object(draws, "draw_rows", choose):
        yield


def drawn(side: Dia2Side, members: list[int]) -> Draws:
    batch, found = (
        side.batch(len(members)),
        Draws(np.zeros((len(members), STEPS, 1 + CONFIG.n_streams), np.int32), []),
    )
    texts = [GivenText(IDS[one], SAMPLING, HostNoise(one)) for one in members]
    for slot, text in enumerate(texts):
        batch.join({slot: text})
    with noted(side, found.scores):
        for step in range(STEPS):
            found.ids[:, step, 1:] = batch.read(batch.launch(1))[0]
    for slot, text in enumerate(texts):
        found.ids[slot, :, 0] = text.actions
    return found


@pytest.mark.parametrize("kind", ["torch", "mlx"])
def test_a_row_does_not_depend_on_the_batch(kind: str) -> None:
    """Equal but for near-ties; after one, the frame's other codes follow from another one."""
    side = build(kind, tiny(CONFIG, seed=6))
    together, ties = drawn(side, [*range(TEXTS)]), 0
    for one in range(TEXTS):
        single = drawn(side, [one])
        for step in np.flatnonzero((together.ids[one] != single.ids[0]).any(axis=1)):
            place = int(np.flatnonzero(together.ids[one, step] != single.ids[0, step])[0])
            [scores] = single.scores[step * (1 + CONFIG.n_streams) + place]
            first, second = together.ids[one, step, place], single.ids[0, step, place]
            assert abs(scores[first] - scores[second]) < NEAR, (one, step, place)
            ties += 1
    assert ties <= 2  # of 480 frames


@pytest.mark.parametrize("kind", ["torch", "mlx"])
def test_texts_of_other_guidance_come_and_go(kind: str) -> None:
    """A text without guidance beside those with it, which leave before it: the ids that it draws alone."""
    side, bare = build(kind, tiny(CONFIG, seed=6)), Dia2Choice(1.0, 9, 0.8, 9)
    samplings = [Dia2Sampling(bare, bare), SAMPLING, SAMPLING]

    def drawn(members: list[int], leaving: dict[int, int]) -> dict[int, np.ndarray]:
        """leaving: step before which a text leaves."""
        batch, found = side.batch(3), {one: list[np.ndarray]() for one in members}
        for one in members:
            batch.join({one: GivenText(IDS[one], samplings[one], HostNoise(one))})
        for step in range(12):
            for one in [one for one, last in leaving.items() if last == step]:
                batch.leave(one)
            [ids] = batch.read(batch.launch(1))
            for one in batch.rows.texts:
                found[one].append(ids[one])
        return {one: np.stack(ids) for one, ids in found.items()}

    together = drawn([1, 0, 2], {1: 4, 2: 8})
    for one in range(3):
        alone = drawn([one], {})[one]
        np.testing.assert_array_equal(together[one], alone[: len(together[one])])

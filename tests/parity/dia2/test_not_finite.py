"""NaN in any row and any stage of Dia2's draws is an error, never sound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.golden.dia2_bench import build
from tests.sides import SIDES
from tests.tiny.dia2_texts import GivenText
from tests.tiny.networks import dia2_config, tiny
from tts_core.dia2.inputs import Dia2Choice, Dia2Sampling
from tts_core.nn.noise import HostNoise

GUIDED = Dia2Sampling(Dia2Choice(2.0, 5, 0.6, 2), Dia2Choice(2.0, 5, 0.8, 5))
STAGES = dia2_config().n_streams - 1


def poisoned(run: Any, stage: int, row: int, bad: Any) -> Any:
    """Call a depformer's stage; the logits of one stage get a NaN in one row. bad: logits, row → logits."""

    def spoil(place: int, *given: Any) -> Any:
        logits = run(place, *given)
        return bad(logits, row) if place == stage else logits

    return spoil


def torch_nan(logits: Any, row: int) -> Any:
    logits = logits.clone()
    logits[row, 3] = float("nan")
    return logits


def mlx_nan(logits: Any, row: int) -> Any:
    import mlx.core as mx

    spoiled = np.zeros(logits.shape, np.float32)
    spoiled[row, 3] = np.nan
    return logits + mx.array(spoiled)


@pytest.mark.parametrize("stage", range(STAGES))
@pytest.mark.parametrize("row", [0, 1], ids=["conditional", "unconditional"])
@pytest.mark.parametrize("side", SIDES)
def test_every_stage_and_row_counts(side: str, row: int, stage: int, monkeypatch: pytest.MonkeyPatch) -> None:
    config = dia2_config()
    made = build(side, tiny(config, seed=2))
    batch, ids = made.batch(2), np.ones(2 + config.n_streams, np.int32)
    for slot in (0, 1):
        batch.join({slot: GivenText([ids], GUIDED, HostNoise(slot))})
    if side == "mlx":
        form = batch.decoder.fused
        monkeypatch.setattr(form, "stage", poisoned(form.stage, stage, 2 * row, mlx_nan))
    else:
        depformer = made.network.depformer
        monkeypatch.setattr(depformer, "forward", poisoned(depformer.forward, stage, 2 * row, torch_nan))
    [codes] = batch.read(batch.launch(1))
    assert codes[0].min() == -1, "the text whose row is spoiled"
    assert codes[1].min() >= 0, "its neighbor"


@pytest.mark.parametrize("side", SIDES)
def test_rows_that_a_text_does_not_use_do_not_count(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a guided text an unguided one has an unconditional row, of which nothing is read."""
    config, alone = dia2_config(), Dia2Choice(1.0, 5, 0.8, 5)
    made = build(side, tiny(config, seed=2))
    batch, ids = made.batch(2), np.ones(2 + config.n_streams, np.int32)
    batch.join({0: GivenText([ids], Dia2Sampling(alone, alone), HostNoise(0))})
    batch.join({1: GivenText([ids], GUIDED, HostNoise(1))})
    if side == "mlx":
        form = batch.decoder.fused
        monkeypatch.setattr(form, "stage", poisoned(form.stage, 0, 2, mlx_nan))
    else:
        depformer = made.network.depformer
        monkeypatch.setattr(depformer, "forward", poisoned(depformer.forward, 0, 2, torch_nan))
    assert batch.read(batch.launch(1)).min() >= 0


@pytest.mark.parametrize("side", SIDES)
def test_a_fault_is_looked_for_behind_the_likeliest_codes(side: str) -> None:
    """Here no code but 0, which is not the likeliest, has a finite embedding."""
    config = dia2_config()
    weights = tiny(config, seed=2)
    weights.tensors["depformer.audio_embeds.0.weight"][1:] = np.nan
    made = build(side, weights)
    tokens = made.array(np.ones((4, 2 + config.n_streams), np.int32))
    error = made.module("dia2.decoder").fault(made.network, tokens, (3, 3))
    assert "depformer.audio_embeds.0" in str(error)

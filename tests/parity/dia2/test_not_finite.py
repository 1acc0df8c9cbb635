"""NaN in any row and any stage of Dia2's draws is an error, never sound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.golden.dia2_bench import build
from tests.sides import BOTH
from tests.tiny.dia2 import dia2_config, dia2_weights
from tts_core.dia2.sampling import Dia2Choice, Dia2Sampling
from tts_core.dia2.slots import Dia2Joining
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
@pytest.mark.parametrize("side", BOTH)
def test_every_stage_and_row_counts(side: str, row: int, stage: int, monkeypatch: pytest.MonkeyPatch) -> None:
    config = dia2_config()
    made = build(side, dia2_weights(config, seed=2))
    slots = made.slots()
    for slot in (0, 1):
        slots.join(
            slot, Dia2Joining(np.zeros((0, 2 + config.n_streams), np.int32), 0, GUIDED, HostNoise(slot))
        )
    if side == "mlx":
        monkeypatch.setattr(slots.fused, "stage", poisoned(slots.fused.stage, stage, row, mlx_nan))
    else:
        depformer = slots.network.depformer
        monkeypatch.setattr(depformer, "forward", poisoned(depformer.forward, stage, row, torch_nan))
    ids = np.ones(2 + config.n_streams, np.int32)
    assert min(slots.act({0: ids, 1: ids}).values()) >= 0
    codes = slots.read(slots.draw({0: (3, 3), 1: (3, 3)}))
    assert codes[0].min() == -1, "the text whose row is spoiled"
    assert codes[1].min() >= 0, "its neighbor"


@pytest.mark.parametrize("side", BOTH)
def test_a_fault_is_looked_for_behind_the_likeliest_codes(side: str) -> None:
    """Here no code but 0, which is not the likeliest, has a finite embedding."""
    config = dia2_config()
    weights = dia2_weights(config, seed=2)
    weights.tensors["depformer.audio_embeds.0.weight"][1:] = np.nan
    made = build(side, weights)
    tokens = made.array(np.ones((4, 2 + config.n_streams), np.int32))
    error = made.module("dia2.guard").fault(made.network, tokens, (3, 3))
    assert "depformer.audio_embeds.0" in str(error)

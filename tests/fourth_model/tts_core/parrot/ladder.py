"""The runs of Parrot and its codec that `mlx-port verify` compares."""

from __future__ import annotations

import numpy as np

from tts_core.codecs.ladder import dac_rungs
from tts_core.config import config_of
from tts_core.nn.ladder import InputSources, Rung
from tts_core.nn.layer_order import State, stage
from tts_core.nn.layers import Arrays, Layers
from tts_core.parrot.spec import ParrotConfig


class ParrotLayers(Layers):
    """Stages of the ladder."""

    KIND = "parrot"

    def norm(self, x: Arrays, index: int) -> Arrays:
        """The norm."""
        return {"rows": self.network.norm(x["rows"])}

    def beak(self, x: Arrays, index: int) -> Arrays:
        """The head."""
        return {"logits": self.network.beak(x["rows"])}


def ladder(given: InputSources) -> list[Rung]:
    """The codec in both directions, then Parrot."""
    order = [stage("norm", "norm", "rows"), stage("beak", "beak", "logits")]
    return [*dac_rungs(given), Rung("parrot", ParrotLayers, order, _rows)]


def _rows(given: InputSources) -> State:
    width = config_of(given.configs, "parrot", ParrotConfig).width
    random = np.random.default_rng(given.seed)
    return {"rows": random.normal(size=(1, given.rows, width)).astype(np.float32)}

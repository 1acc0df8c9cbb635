"""The runs of Parrot and its codec that `mlx-port verify` watches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tts_core.codecs.probes import dac_probes
from tts_core.config import config_of
from tts_core.nn.probe import Framework, InputSources, Probe
from tts_core.parrot.model import ParrotConfig


def probes(sources: InputSources) -> list[Probe]:
    """The codec in both directions, then Parrot."""
    width = config_of(sources.configs, "parrot", ParrotConfig).width
    rows = sources.random().normal(size=(1, sources.rows, width)).astype(np.float32)

    def run(network: Any, framework: Framework) -> Mapping[str, Any]:
        return {"logits": network.beak(network.norm(framework.array(rows)))}

    return [*dac_probes(sources), Probe("parrot", "parrot", {"rows": rows}, run, "norm|beak")]

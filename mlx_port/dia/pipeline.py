"""Dia's pipeline on this side, loaded from a folder or built from networks."""

from __future__ import annotations

from pathlib import Path

from mlx_port.codecs.dac import Dac
from mlx_port.dia.dia import Dia
from mlx_port.dia.engine import DiaEngine
from mlx_port.loading import Parts, open_parts
from mlx_port.steps.dia.fused import try_kernels
from mlx_port.stored import understood
from tts_core.codecs.dac_memory import codec_policy
from tts_core.dia import pipeline
from tts_core.dia.memory import check_loading
from tts_core.pipeline import check_model
from tts_core.text.rules import NO_RULES, TextRules, read_rules


class DiaPipeline(pipeline.DiaPipeline):
    """Dia on this side, with its networks in `engine`."""

    engine: DiaEngine

    @classmethod
    def load(cls, path: str | Path, *, dtype: str | None = None, check: bool = False) -> DiaPipeline:
        """Load a Dia from a folder that convert-weights wrote; arguments and errors as in `mlx_port.load`.

        Raises UsageError for a folder of another model.
        """
        parts = open_parts(path, dtype=dtype, check=check)
        check_model(parts.model, "dia")
        return assemble(parts)


def assemble(parts: Parts) -> DiaPipeline:
    """Build the pipeline; its codec uses windows that fit the remaining memory.

    Raises ResourceError, before weights are read, for too little memory.
    """
    understood(lambda _: check_loading(parts.configs, parts.machine()), {}, parts.folder)
    network, codec = parts.network("dia", Dia), parts.network("dac", Dac)
    codec.policy = codec_policy(codec.config, parts.machine())
    pipeline = compose(network, codec, read_rules(parts.documents["dia"]))
    try_kernels(network)
    return pipeline


def compose(network: Dia, codec: Dac, rules: TextRules = NO_RULES) -> DiaPipeline:
    """Build the pipeline of loaded networks."""
    return DiaPipeline(DiaEngine(network, codec), rules)

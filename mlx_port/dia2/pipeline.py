"""Dia2's pipeline on this side, loaded from a folder or built from networks."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx

from mlx_port.codecs.mimi import Mimi
from mlx_port.dia2.dia2 import Dia2
from mlx_port.dia2.engine import Dia2Engine
from mlx_port.kernels.attention import try_long
from mlx_port.loading import Parts, open_parts
from mlx_port.steps.dia2.fused import try_kernels
from mlx_port.stored import understood
from tts_core.dia2 import pipeline
from tts_core.dia2.memory import check_loading
from tts_core.dia2.tokenizer import FILE
from tts_core.pipeline import check_model


class Dia2Pipeline(pipeline.Dia2Pipeline):
    """Dia2 on this side, with its networks in `engine`."""

    engine: Dia2Engine

    @classmethod
    def load(cls, path: str | Path, *, dtype: str | None = None, check: bool = False) -> Dia2Pipeline:
        """Load a Dia2 from a folder that convert-weights wrote; arguments and errors as in `mlx_port.load`.

        Raises UsageError for a folder of another model.
        """
        parts = open_parts(path, dtype=dtype, check=check)
        check_model(parts.model, "dia2")
        return assemble(parts)


def assemble(parts: Parts) -> Dia2Pipeline:
    """Build the pipeline. Raises ResourceError, before weights are read, for too little memory."""
    understood(lambda _: check_loading(parts.configs, parts.machine()), {}, parts.folder)
    network, codec = parts.network("dia2", Dia2), parts.network("mimi", Mimi)
    engine = Dia2Engine(network, codec, parts.documents["dia2"][FILE])
    try_kernels(network)
    heads = codec.config
    try_long(heads.num_attention_heads, heads.num_key_value_heads, heads.head_dim, mx.float32)
    return Dia2Pipeline(engine)

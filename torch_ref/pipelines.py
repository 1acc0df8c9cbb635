"""Load the pipeline of the model in published checkpoints or converted folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack, overload

from torch_ref.loading import How, assemble, open_parts
from tts_core import models
from tts_core.pipeline import check_model

if TYPE_CHECKING:
    from torch_ref.dia.pipeline import DiaPipeline
    from torch_ref.dia2.pipeline import Dia2Pipeline
    from torch_ref.mars5.pipeline import Mars5Pipeline
    from torch_ref.metavoice.pipeline import MetaVoicePipeline
    from torch_ref.qwen3.pipeline import Qwen3Pipeline
    from tts_core.speaking.pipeline import Pipeline


@overload
def load(
    path: str | Path | Sequence[str | Path], *, model: Literal["dia"], **how: Unpack[How]
) -> DiaPipeline: ...
@overload
def load(
    path: str | Path | Sequence[str | Path], *, model: Literal["dia2"], **how: Unpack[How]
) -> Dia2Pipeline: ...
@overload
def load(
    path: str | Path | Sequence[str | Path], *, model: Literal["mars5"], **how: Unpack[How]
) -> Mars5Pipeline: ...
@overload
def load(
    path: str | Path | Sequence[str | Path], *, model: Literal["metavoice"], **how: Unpack[How]
) -> MetaVoicePipeline: ...
@overload
def load(
    path: str | Path | Sequence[str | Path], *, model: Literal["qwen3"], **how: Unpack[How]
) -> Qwen3Pipeline: ...
@overload
def load(path: str | Path | Sequence[str | Path], *, model: None = None, **how: Unpack[How]) -> Pipeline: ...
def load(
    path: str | Path | Sequence[str | Path],
    *,
    model: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
    codec: str | Path | None = None,
    codec_precision: str | None = None,
    cross_rope: bool | None = None,
    config: str | Path | None = None,
    include: Sequence[str] = (),
    revision: str | None = None,
    offline: bool = False,
) -> Pipeline:
    """Load the pipeline of the model in the files.

    path: folder or file in any published layout, a hub id, or a folder that convert-weights wrote, quantized
    ones included (they are dequantized); a list of them if a model's parts are in several places.
    model: its name, as "dia" or "qwen3", which types its options; None is whatever is there.
    dtype: float32, bfloat16, float16 or float64, for the networks; norms and networks that always run in
    float32 (codecs, vocoders) stay float32 (float64 in float64). None is float32 on the CPU; on CUDA
    bfloat16, or float16 if bfloat16 is only emulated; on MPS the default in the model's spec.
    device: None is CUDA, MPS or the CPU, the first available. The choice and its reason are logged.
    codec: folder, file or hub id of the codec, if `path` does not contain it.
    codec_precision: of codecs' decoders on CUDA: float32, tf32 or bfloat16; None is tf32 beside networks in
    half precision, else float32. Codes of recordings never depend on it.
    cross_rope: overrides the files' setting of rotary cross-attention.
    config: a JSON file with sizes that no tensor shows.
    include: optional parts to load: "mbd".
    revision: branch, tag or commit of hub ids.
    offline: use only what is on this machine, as HF_HUB_OFFLINE=1 does.
    Raises NotFoundError, CheckpointError, UsageError (also for another model than `model`), and ResourceError
    for too little memory.
    """
    models.check_name(model)
    parts = open_parts(
        path,
        dtype=dtype,
        device=device,
        codec=codec,
        codec_precision=codec_precision,
        cross_rope=cross_rope,
        config=config,
        include=include,
        revision=revision,
        offline=offline,
    )
    if model is not None:
        check_model(parts.model, model)
    return assemble(parts)

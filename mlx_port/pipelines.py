"""Load the pipeline of the model in a folder that convert-weights wrote, or of a hub id."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack, overload

from mlx_port.loading import How, assemble, open_parts
from tts_core import models
from tts_core.pipeline import check_model

if TYPE_CHECKING:
    from mlx_port.dia.pipeline import DiaPipeline
    from mlx_port.dia2.pipeline import Dia2Pipeline
    from mlx_port.mars5.pipeline import Mars5Pipeline
    from mlx_port.metavoice.pipeline import MetaVoicePipeline
    from mlx_port.qwen3.pipeline import Qwen3Pipeline
    from tts_core.speaking.pipeline import Pipeline


@overload
def load(path: str | Path, *, model: Literal["dia"], **how: Unpack[How]) -> DiaPipeline: ...
@overload
def load(path: str | Path, *, model: Literal["dia2"], **how: Unpack[How]) -> Dia2Pipeline: ...
@overload
def load(path: str | Path, *, model: Literal["mars5"], **how: Unpack[How]) -> Mars5Pipeline: ...
@overload
def load(path: str | Path, *, model: Literal["metavoice"], **how: Unpack[How]) -> MetaVoicePipeline: ...
@overload
def load(path: str | Path, *, model: Literal["qwen3"], **how: Unpack[How]) -> Qwen3Pipeline: ...
@overload
def load(path: str | Path, *, model: None = None, **how: Unpack[How]) -> Pipeline: ...
def load(
    path: str | Path,
    *,
    model: str | None = None,
    dtype: str | None = None,
    check: bool = False,
    bits: int | None = None,
    revision: str | None = None,
    offline: bool = False,
) -> Pipeline:
    """Load the pipeline of the model in a folder that convert-weights wrote, or of a hub id, as
    "nari-labs/Dia-1.6B-0626": its files are fetched and converted on first use, into the user's cache.

    model: its name ("dia", "dia2", "mars5", "metavoice", "qwen3"), which types its options; None is whatever
    is there.
    dtype: float32, bfloat16 or float16 for the networks; None is each one's own. Norms and networks that
    always run in float32 (codecs, vocoders) stay float32.
    check: first compare the sha256 of every file with conversion.json; sizes are always compared.
    bits: per weight, 8 or 4, of a hub id's converted copy; None does not quantize.
    revision: branch, tag or commit of a hub id.
    offline: use only what is on this machine, as HF_HUB_OFFLINE=1 does.
    Raises NotFoundError, CheckpointError (for published files, with the command that converts them),
    UsageError (also for another model than `model`), and ResourceError for too little memory or disk.
    """
    models.check_name(model)
    parts = open_parts(path, dtype=dtype, check=check, bits=bits, revision=revision, offline=offline)
    if model is not None:
        check_model(parts.model, model)
    return assemble(parts)

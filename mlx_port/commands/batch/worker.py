"""A worker: a model on one device that speaks rows. Local processes and Ray's actors have the same."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from mlx_port.commands.arithmetic import arithmetic, codec_precision
from mlx_port.commands.loading_flags import Loading
from mlx_port.commands.opening import load_pipeline, open_model
from tts_core.bulk.choosing import ChoosingRowSpeaker
from tts_core.bulk.rejection import Rejection
from tts_core.bulk.requests import BulkWork
from tts_core.bulk.speaking import RowSpeaker
from tts_core.judges.judging import judges_of
from tts_core.judges.process import JudgeProcesses
from tts_core.serving.source import ModelSource


@dataclass(frozen=True)
class Setting:
    """A model and how to run it; arguments as for `mlx-port generate`.

    places: rows at once, at most.  rejection: of spoken rows, by as many processes of `judges`.
    """

    model: str | None
    loading: Loading
    places: int
    work: BulkWork
    rejection: Rejection | None = None
    judges: int = 1


def build_speaker(setting: Setting) -> RowSpeaker | ChoosingRowSpeaker:
    """Load the model of a worker. What it returns speaks rows with their keys, in any order."""
    rejection, backend = setting.rejection, setting.loading.backend
    judges = None  # they start while the model is loaded
    if rejection is not None:
        judges = JudgeProcesses(partial(judges_of, tuple(rejection.judges)), setting.judges)
    parts = open_model(setting.model, setting.loading)
    load = partial(load_pipeline, parts, backend)
    source = ModelSource(str(parts.model), parts.configs, parts.documents, load)
    pipeline = load()
    labels = {
        **setting.work.labels,
        "codec_precision": codec_precision(backend, parts.codec_precision),
        "arithmetic": arithmetic(backend),
    }
    work = replace(setting.work, labels=labels)
    speaker = RowSpeaker(source, partial(pipeline.session, setting.places, streamed=False), work)
    if rejection is None or judges is None:
        return speaker
    return ChoosingRowSpeaker(speaker, judges, rejection)

"""A worker: a model on one device that speaks rows. Local processes and Ray's actors have the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

from mlx_port.commands.speak import load_pipeline, open_model
from tts_core.bulk.outcome import Outcome
from tts_core.bulk.rows import Row
from tts_core.bulk.speaking import Speaker, Work
from tts_core.serving.source import Source


@dataclass(frozen=True)
class Setting:
    """A model and how to run it; arguments as for `mlx-port generate`. places: rows at once, at most."""

    model: str | None
    backend: Literal["mlx", "torch"]
    dtype: str | None
    places: int
    work: Work


class Worker:
    """Loads the model when it is built."""

    def __init__(self, setting: Setting):
        parts = open_model(setting.model, setting.backend, setting.dtype)
        load = partial(load_pipeline, parts, setting.backend)
        source = Source(str(parts.model), parts.configs, parts.documents, load)
        pipeline = load()
        self.speaker = Speaker(source, pipeline.session(setting.places), setting.work)

    def speak(self, rows: Iterable[tuple[Row, str]]) -> Iterator[Outcome]:
        """Speak rows with their keys, in any order; rows are taken as places become free."""
        return self.speaker.speak(rows)

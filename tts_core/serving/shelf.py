"""The models that are loaded. If memory is short, loading one unloads those used least recently."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tts_core.errors import ResourceError
from tts_core.serving.session import Failed
from tts_core.serving.source import ModelSource
from tts_core.serving.speech import Speech

if TYPE_CHECKING:
    from tts_core.speaking.pipeline import Pipeline
    from tts_core.speaking.session import SpeechSession

_LOG = logging.getLogger("tts_core")


@dataclass(eq=False)
class LoadedModel:
    """A loaded model with its running batch.

    speeches: those that joined, by key.  used: seconds of the clock when it last spoke.
    """

    name: str
    pipeline: Pipeline
    session: SpeechSession
    speeches: dict[int, Speech] = field(default_factory=dict)
    used: float = field(default_factory=time.perf_counter)


class Shelf:
    """All models of an engine, loaded or not. For the thread that speaks only.

    places: of every batch, at most.
    warm_up: speak once after loading, unheard.
    freeze: as in SpeechEngine.
    """

    def __init__(
        self, sources: Mapping[str, ModelSource], *, places: int, warm_up: bool, freeze: bool = False
    ):
        self.sources, self.places, self.warm_up, self.freeze = sources, places, warm_up, freeze
        self._loaded: dict[str, LoadedModel] = {}

    def __iter__(self) -> Iterator[LoadedModel]:
        """Yield the loaded models, the last used first."""
        return iter(sorted(self._loaded.values(), key=lambda loaded: -loaded.used))

    def get(self, name: str) -> LoadedModel | None:
        """Return a model if it is loaded."""
        return self._loaded.get(name)

    def open(self, name: str) -> LoadedModel:
        """Load a model that is not loaded, while nobody speaks.

        Others are unloaded one by one, the least recently used first, as long as the memory plan refuses it.
        Raises as the source's `load`.
        """
        while True:
            try:
                pipeline = self.sources[name].load()
                found = LoadedModel(name, pipeline, pipeline.session(self.places))
                break
            except ResourceError:
                if not self._loaded:
                    raise
            pipeline = None  # if only its batch did not fit
            *_, oldest = self._names()
            self.unload(oldest)
        self._loaded[name] = found
        if self.warm_up:
            rehearse(found.session)
        if self.freeze:
            self._settle()
        found.used = time.perf_counter()
        return found

    def reopen(self, found: LoadedModel) -> None:
        """Replace a model's batch after an error in it; a batch that cannot be opened unloads the model."""
        try:
            found.session.close()
        except Exception:  # its memory is freed with the object
            _LOG.warning("serving: the broken batch of %s does not close", found.name, exc_info=True)
        try:
            found.session = found.pipeline.session(self.places)
        except Exception:
            _LOG.exception("serving: %s is unloaded: its batch cannot be opened again", found.name)
            del self._loaded[found.name]
            self._settle()

    def unload(self, name: str) -> None:
        """Free a model's memory; it must not be speaking, and the caller must not hold it."""
        self._loaded.pop(name).session.close()
        self._settle()
        _LOG.info("serving: %s is unloaded", name)

    def unload_idle(self, seconds: float) -> None:
        """Unload the models that have not spoken for so long."""
        now = time.perf_counter()
        idle = [loaded.name for loaded in self if not loaded.session.running and now - loaded.used >= seconds]
        for name in idle:
            self.unload(name)

    def _settle(self) -> None:
        """Free what is left in cycles; with `freeze`, let the collector pass over all else from now on.

        A framework and a model are 300,000 objects: looking at them all would stop every speech for half a
        second.
        """
        if self.freeze:
            gc.unfreeze()
        gc.collect()
        if self.freeze and self._loaded:
            gc.freeze()

    def close(self) -> None:
        """Unload all models."""
        for name in self._names():
            self.unload(name)

    def _names(self) -> list[str]:
        """List the loaded models, the last used first."""
        return [loaded.name for loaded in self]


def rehearse(session: SpeechSession) -> None:
    """Prepare a session, and speak its rehearsal to its end. Raises its error."""
    started = time.perf_counter()
    session.prepare()
    session.join(session.rehearsal())
    while session.running:
        for event in session.step():
            if isinstance(event, Failed):
                raise event.error
    _LOG.info("serving: warmed up in %.1f s", time.perf_counter() - started)

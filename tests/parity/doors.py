"""The public doors of a model, and what a caller got there."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from tests.contract.speakers import folder as small_folder
from tests.contract.speakers import given
from tests.contract.test_pieces import brief
from tests.sides import SIDES
from tests.temporary import run_folder
from tts_core.errors import SpeechError
from tts_core.options import options_class
from tts_core.results import GenerationResult, merge
from tts_core.serving.engine import SpeechEngine
from tts_core.serving.session import Failed
from tts_core.serving.shelf import Shelf
from tts_core.serving.source import ModelSource

BYTES = re.compile(r"\d[\d.]* ?[kMG]i?B")
MOST_STEPS = 20_000  # that no scene needs


def folder(model: str) -> Path:
    """The converted networks; those of Qwen3-TTS end their pieces by themselves."""
    return brief() if model == "qwen3" else small_folder(model)


@dataclass
class Heard:
    """What a caller got: parts, then an error if there was one. notes: further facts that stay, as JSON."""

    parts: list[GenerationResult] = field(default_factory=list)
    error: str | None = None
    notes: Any = None

    @property
    def codes(self) -> np.ndarray:
        return np.concatenate([part.codes for part in self.parts], axis=1)

    @property
    def audio(self) -> np.ndarray:
        return np.concatenate([part.audio for part in self.parts])

    def facts(self) -> dict[str, Any]:
        """All but codes and samples, as JSON has it."""
        found: dict[str, Any] = {"error": self.error, "notes": self.notes}
        if self.parts:
            whole = merge(self.parts)
            found |= {
                "seed": whole.seed,
                "end": whole.finish_reason,
                "rows": whole.token_count,
                "rate": whole.sample_rate,
                "parts": [[part.samples, part.codes.shape[1]] for part in self.parts],
                "cues": [[*map(rounded, (cue.start, cue.end)), cue.text] for cue in whole.cues],
                "words": [[rounded(word.start), rounded(word.end), word.text] for word in whole.words],
                "pieces": [[p.text, p.seed, p.codes.shape[1], p.finish_reason] for p in whole.pieces],
            }
        return found


def rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(float(seconds), 5)


def message(error: Exception) -> str:
    """An error with its kind, numbers of bytes masked."""
    return f"{type(error).__name__}: {BYTES.sub('# GB', str(error))}"


@dataclass(frozen=True)
class Door:
    """A model on a side: torch, float64 or mlx. poison: of its weights, as in POISON."""

    model: str
    side: str
    poison: bool = False

    @property
    def folder(self) -> Path:
        return poisoned(self.model) if self.poison else folder(self.model)

    @property
    def arguments(self) -> dict[str, Any]:
        """Of `load`."""
        dtype = "float64" if self.side == "float64" else "float32"
        return {"dtype": dtype, **({} if self.side == "mlx" else {"device": "cpu"})}

    @property
    def package(self) -> Any:
        return import_module(SIDES.get(self.side, "torch_ref"))

    @property
    def pipeline(self) -> Any:
        return loaded(self)

    def request(self, text: str, **changes: Any) -> Any:
        """A checked request."""
        options = given(self.model, **changes)
        prompt = options.pop("prompt")
        return self.pipeline.request(text, options_class(self.model)(**options), prompt)

    def heard(self, parts: Callable[[], Iterator[GenerationResult]]) -> Heard:
        """Listen to a stream to its end or its error."""
        found = Heard()
        try:
            for part in parts():
                found.parts.append(part)
        except SpeechError as error:
            found.error = message(error)
        return found

    def refused(self, call: Callable[[], Any]) -> Heard:
        """The error of a call that must fail."""
        try:
            call()
        except SpeechError as error:
            return Heard(error=message(error))
        raise AssertionError("no error")

    # the doors of the server that have no public name yet: whatever replaces them is named here

    @property
    def source(self) -> ModelSource:
        """What a server knows of a model before it is loaded."""
        parts = import_module(f"{self.package.__name__}.loading").open_parts(self.folder, **self.arguments)
        return ModelSource(self.model, parts.configs, parts.documents, lambda: self.pipeline)

    def session(self, places: int) -> Any:
        """The session that a server opens."""
        return Shelf({self.model: self.source}, places=places, warm_up=False).open(self.model).session

    def engine(self, places: int) -> SpeechEngine:
        """The queue and the thread of a server, which loads the model itself."""
        source = replace(self.source, load=lambda: self.package.load(self.folder, **self.arguments))
        return SpeechEngine({self.model: source}, places=places, warm_up=False)


@cache
def loaded(door: Door) -> Any:
    return door.package.load(door.folder, **door.arguments)


# a row of a table that a code drawn late reads: its numbers are NaN
POISON: Mapping[str, tuple[str, int]] = {
    "dia": ("model.decoder.embeddings.embed.weight", 9),
    "dia2": ("transformer.audio_embeds.0.weight", 9),
    "mars5": ("embed.weight", 918),
    "metavoice": ("transformer.wpe.weight", 28),  # a position that the longer texts reach
    "qwen3": ("talker.model.codec_embedding.weight", 9),
}


@cache
def poisoned(model: str) -> Path:
    made = run_folder("poisoned") / "model"
    shutil.copytree(folder(model), made)
    name, row = POISON[model]
    file = np.memmap(made / "model.safetensors", mode="r+")  # in place, for its size is on record
    header = 8 + int(file[:8].view("<u8")[0])
    entry = json.loads(file[8:header].tobytes())[name]
    assert entry["dtype"] == "F32"
    start, stop = (header + place for place in entry["data_offsets"])
    width = 4 * entry["shape"][-1]
    file[start + row * width : stop][:width] = np.full(entry["shape"][-1], np.nan, "<f4").view(np.uint8)
    file.flush()
    return made


def listen(session: Any, heard: Mapping[int, Heard], *, steps: int | None = None) -> None:
    """Step until nothing runs or all that runs waits for text; or so many steps."""
    for step in range(MOST_STEPS if steps is None else steps):
        assert step < MOST_STEPS - 1, "the session does not end"
        if not session.running or session.waiting:
            return
        for event in session.step():
            if event.key not in heard:
                continue
            if isinstance(event, Failed):
                heard[event.key].error = message(event.error)
            else:
                heard[event.key].parts.append(event.result)


@contextmanager
def free(nbytes: int) -> Iterator[None]:
    """A machine with so little memory. What MLX keeps for the next arrays counts as free: it keeps none."""
    import mlx.core as mx

    limit = mx.set_cache_limit(0)
    mx.clear_cache()
    try:
        with patch("tts_core.memory.computer.free_bytes", lambda: nbytes):
            yield
    finally:
        mx.set_cache_limit(limit)

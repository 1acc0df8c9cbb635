"""Every model that `tts_core.models.NAMES` lists, small, on both sides, with requests of a few frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.parity.recorded_runs import FIRST, SECOND, VOICE, codes, speech
from tests.parity.recorded_runs import folder as recorded_folder
from tests.sides import SIDES
from tests.temporary import run_folder
from tests.tiny.dia import write_published
from tests.tiny.dia2 import published_dia2
from tests.tiny.dia2 import recording as dia2_recording
from tests.tiny.networks import dia_config, published_dac_config, tiny
from tests.tiny.qwen3 import write_published as published_qwen3
from tests.tiny.recordings import snippet
from tests.windows import Windows
from tts_core import models
from tts_core.options import options_class
from tts_core.prompt import Prompt
from tts_core.results import GenerationResult, merge
from tts_core.serving.session import Part
from tts_core.serving.source import ModelSource
from tts_core.speaking.session import SpeechSession

TEXTS = ("The inn is near.", "Then it thins out.", "There it ends!", "An old tin mine.")
SENTENCES = "The inn is near the hide. Then it thins out again. There it ends!"


@dataclass(frozen=True)
class Small:
    """Small networks of a model, and requests that they speak in little time.

    folder: writes the model as convert-weights does. options: of every request. voices: prompts, the first of
    which is used where one is enough. cut: further options that divide SENTENCES into pieces. settings:
    options that requests of a running batch differ in.
    """

    folder: Callable[[], Path]
    options: Mapping[str, Any]
    voices: tuple[Any, ...] = (None,)
    cut: Mapping[str, Any] = field(default_factory=dict)
    settings: tuple[Mapping[str, Any], ...] = ({},)


def converted(write: Callable[[Path], Path]) -> Path:
    """Write a model as it is published and convert it, for the whole run."""
    from converters.convert import convert
    from converters.published import open_published

    made = run_folder("contract")
    convert(open_published(write(made / "published")), made / "model", dtype="float32")
    return made / "model"


def dia(folder: Path) -> Path:
    """A Dia that ends its pieces early."""
    config = dia_config(positions=400, text_positions=300)
    return write_published(folder, tiny(config, seed=3, eos=1.3), tiny(published_dac_config()))


SPEECH = speech(2.0, 24_000)
SMALL: Mapping[str, Small] = {
    "dia": Small(
        lambda: converted(dia),
        {"max_frames": 30},
        (None, snippet(speech(0.05, 44_100), "[S1] An inn.")),
        {"max_frames": 200, "piece_seconds": 2.0},
        ({"temperature": 0.7, "cfg_scale": 1.5, "top_k": 9, "top_p": 1.0}, {"temperature": 0.0}),
    ),
    "dia2": Small(
        lambda: converted(published_dia2),
        {"max_frames": 16},
        (None, dia2_recording()),
        {"max_frames": 60},
        ({"cfg_scale": 1.0, "temperature": 1.1}, {"temperature": 0.0, "action_temperature": 0.0}),
    ),
    "mars5": Small(
        lambda: recorded_folder("mars5"),
        {"timesteps": 2, "generate_max_len_override": 32},
        (VOICE, Prompt.of(codes=codes(8, 1024, 7, seed=3))),
        {"piece_seconds": 20 / 15},
        ({"cfg_scale": 1.0, "temperature": 0.0}, {"top_k": 0, "top_p": 0.9, "draws": "per class"}),
    ),
    "metavoice": Small(
        lambda: recorded_folder("metavoice"),
        {"max_frames": 10},
        (FIRST, SECOND),
        {"max_frames": 30, "piece_seconds": 20 / 15},
        ({"cfg_scale": (2.0, 1.5), "top_p": 0.8}, {"cfg_scale": 1.0, "decoder": "mbd"}),
    ),
    "qwen3": Small(
        lambda: converted(lambda folder: published_qwen3(folder, "base", eos=0.2)),
        {"max_frames": 10},
        (Prompt.of(SPEECH, sample_rate=24_000), Prompt.of(SPEECH, "An inn is near.", sample_rate=24_000)),
        {"max_frames": 40, "piece_seconds": 1.0},
        ({"temperature": 0.0, "language": "english"}, {"layout": "whole", "subtalker_top_k": 5}),
    ),
}

every_model = pytest.mark.parametrize("model", models.NAMES)
every_side = pytest.mark.parametrize("side", SIDES)
fed = tuple(name for name in models.NAMES if models.MODELS[name].fed)


@cache
def folder(model: str) -> Path:
    """The converted folder, which both sides load."""
    return SMALL[model].folder()


@cache
def speaker(model: str, side: str) -> Any:
    """The loaded pipeline, in float32 on the CPU."""
    device = {"device": "cpu"} if side == "torch" else {}
    return import_module(SIDES[side]).load(folder(model), dtype="float32", **device)


def source(model: str, side: str) -> ModelSource:
    """The opened files, of which the thread of an engine loads the pipeline."""
    loading = import_module(f"{SIDES[side]}.loading")
    device = {"device": "cpu"} if side == "torch" else {}

    def opened() -> Any:
        return loading.open_parts(folder(model), dtype="float32", **device)

    parts = opened()
    return ModelSource(model, parts.configs, parts.documents, lambda: loading.assemble(opened()))


def given(model: str, **changes: Any) -> dict[str, Any]:
    """Arguments of `generate` and `stream`, with the model's first voice."""
    return {"prompt": SMALL[model].voices[0], **SMALL[model].options, **changes}


def unlimited(model: str, **changes: Any) -> dict[str, Any]:
    """Arguments for texts of several pieces, without a limit."""
    arguments = given(model, **SMALL[model].cut)
    arguments.pop("max_frames", None)
    return {**arguments, **changes}


def request(model: str, side: str, text: str, **changes: Any) -> Any:
    """A checked request with these arguments."""
    arguments = given(model, **changes)
    prompt = arguments.pop("prompt")
    return speaker(model, side).request(text, options_class(model)(**arguments), prompt)


def mixed(model: str, side: str) -> list[Any]:
    """Requests of different texts, voices, lengths and settings; one is spoken in pieces."""
    small = SMALL[model]
    changes = [{}, {"prompt": small.voices[-1]}, *small.settings, {"speed": 1.5}, small.cut]
    texts = [*TEXTS, TEXTS[0], SENTENCES]
    return [
        request(model, side, text, seed=seed, **own)
        for seed, (text, own) in enumerate(zip(texts, changes, strict=True))
    ]


def alone(model: str, side: str, asked: Any) -> GenerationResult:
    """The speech of a request by itself."""
    return merge(list(speaker(model, side).speak(asked)))


def to_end(session: SpeechSession) -> Iterator[Any]:
    """Run a session to its end; its events."""
    while session.running:
        yield from session.step()


def spoken(session: SpeechSession, *asked: Any) -> list[GenerationResult]:
    """Let requests join a session at once and run it to its end."""
    keys = [session.join(one) for one in asked]
    parts: dict[int, list[GenerationResult]] = {key: [] for key in keys}
    for event in to_end(session):
        assert isinstance(event, Part), event
        parts[event.key].append(event.result)
    return [merge(parts[key]) for key in keys]


@cache
def windows(model: str) -> Windows:
    """The bound of samples that were decoded in other windows."""
    return Windows(
        model, lambda dtype: import_module("torch_ref").load(folder(model), dtype=dtype, device="cpu")
    )


def assert_same_speech(
    one: GenerationResult, other: GenerationResult, *, windows: Windows | None = None
) -> None:
    """Require equal codes, ends and samples. windows: if they may differ, those of the model."""
    np.testing.assert_array_equal(one.codes, other.codes)
    assert (one.seed, one.finish_reason) == (other.seed, other.finish_reason)
    assert (len(one.audio), one.sample_rate) == (len(other.audio), other.sample_rate)
    if windows is None:
        np.testing.assert_array_equal(one.audio, other.audio)
    else:
        windows.assert_same(one, other)


def assert_same(one: GenerationResult, other: GenerationResult, *, windows: Windows | None = None) -> None:
    """Require the same speech, captions, times of words and number of tokens."""
    assert_same_speech(one, other, windows=windows)
    assert (one.cues, one.words, one.token_count) == (other.cues, other.words, other.token_count)


def running_batch(session: Any) -> Any:
    """Return the texts of a session's network, on the model's side."""
    return session.slots.batch


def replace_batch(session: Any, batch: Any) -> None:
    """Let a session step another running batch."""
    session.slots.batch = batch

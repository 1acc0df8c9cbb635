"""`generate`, `stream`, `generate_batch` and `generate_codes` of every model on both sides."""

from __future__ import annotations

import threading
import warnings
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from tests.contract.speakers import (
    SENTENCES,
    SMALL,
    TEXTS,
    assert_same,
    assert_same_speech,
    every_model,
    every_side,
    folder,
    given,
    speaker,
    windows,
)
from tests.sides import SIDES
from tts_core import models
from tts_core.errors import CancelledError, ResourceError, UsageError
from tts_core.nn.noise import HostNoise
from tts_core.results import GenerationResult, merge
from tts_core.speaking.running import Running

FIRST_STAGES = {
    "dia": "prompt",
    "dia2": "prompt",
    "mars5": "codec",
    "metavoice": "speaker",
    "qwen3": "prompt",
}


@cache
def whole(model: str, side: str) -> GenerationResult:
    """Three sentences, in pieces if the model needs any."""
    return speaker(model, side).generate(SENTENCES, seed=3, **given(model, **SMALL[model].cut))


@cache
def short(model: str, side: str) -> GenerationResult:
    return speaker(model, side).generate(TEXTS[0], seed=5, **given(model))


def test_every_model_is_tested() -> None:
    assert tuple(SMALL) == models.NAMES


@every_model
def test_both_sides_say_the_same(model: str) -> None:
    """Samples of a codec's bounded tolerance are compared layer by layer in tests/parity/codecs."""
    one, other = (whole(model, side) for side in ("torch", "mlx"))
    assert one.codes.shape[1] > 10
    assert_same(one, other, windows=windows(model))
    assert one.captions().srt() == other.captions().srt()


@every_model
@every_side
def test_a_result_tells_how_it_was_made(model: str, side: str) -> None:
    result = short(model, side)
    assert (result.audio.dtype, result.audio.ndim, result.codes.dtype) == (np.float32, 1, np.int32)
    assert np.abs(result.audio).max() <= 1
    assert result.seed == 5
    assert result.finish_reason in ("stop", "length")
    assert result.is_final_chunk
    assert 0 < result.time_to_first_audio <= result.processing_time_seconds
    assert result.real_time_factor == pytest.approx(result.processing_time_seconds / result.audio_seconds)
    assert result.peak_memory_usage > 0
    assert " ".join(cue.text.removeprefix("[S1] ") for cue in result.cues) == TEXTS[0]
    assert result.cues[-1].end <= result.audio_seconds + 1e-6


@every_model
@every_side
def test_a_stream_joins_to_the_whole(model: str, side: str) -> None:
    """Parts are counted, and the last one says why it ended."""
    parts = list(speaker(model, side).stream(SENTENCES, seed=3, **given(model, **SMALL[model].cut)))
    assert len(parts) >= 3
    assert_same(merge(parts), whole(model, side), windows=windows(model))
    assert [part.segment_idx for part in parts] == list(range(len(parts)))
    assert [part.is_final_chunk for part in parts] == [False] * (len(parts) - 1) + [True]
    assert [part.finish_reason for part in parts[:-1]] == [None] * (len(parts) - 1)
    counts = [part.token_count for part in parts]
    assert counts == sorted(counts)
    assert parts[0].time_to_first_audio == parts[-1].time_to_first_audio < parts[-1].processing_time_seconds


@every_model
@every_side
def test_a_stream_speaks_as_it_is_read(model: str, side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No step before the first part is wanted, and some only for the next parts."""
    steps, turn = list[int](), Running.advance
    monkeypatch.setattr(Running, "advance", lambda slots: [steps.append(1), turn(slots)][1])
    stream = speaker(model, side).stream(SENTENCES, seed=3, **given(model, **SMALL[model].cut))
    assert not steps
    assert next(stream).samples
    first = len(steps)
    assert list(stream)
    assert 0 < first < 0.8 * len(steps)


@every_model
@every_side
def test_a_batch_is_its_texts_alone(model: str, side: str) -> None:
    """Each with its own voice and seed; a list is one value a text, a single value is for all."""
    pipeline, options, voices = speaker(model, side), dict(SMALL[model].options), SMALL[model].voices
    prompts, seeds = [voices[0], voices[-1], voices[0]], [5, 1, 2]
    texts = [TEXTS[0], TEXTS[1], f"{TEXTS[2]} [pause:0.1] {TEXTS[3]}"]
    batch = pipeline.generate_batch(texts, prompts=prompts, seed=seeds, **options)
    for text, prompt, seed, result in zip(texts, prompts, seeds, batch, strict=True):
        assert_same_speech(
            result, pipeline.generate(text, prompt=prompt, seed=seed, **options), windows=windows(model)
        )
        assert result.is_final_chunk
    limits = {"max_frames": [3, 1, 2]}
    for place, result in enumerate(
        pipeline.generate_batch(texts, prompts=prompts, seed=seeds, **{**options, **limits})
    ):
        own = {**options, "max_frames": limits["max_frames"][place]}
        found = pipeline.generate(texts[place], prompt=prompts[place], seed=seeds[place], **own)
        assert_same_speech(result, found, windows=windows(model))
    both = pipeline.generate_batch(TEXTS[:2], prompts=[voices[0]] * 2, seed=5, **options)
    assert_same_speech(both[0], short(model, side), windows=windows(model))
    fresh = pipeline.generate_batch(TEXTS[:2], prompts=[voices[0]] * 2, **options)
    assert fresh[0].seed == fresh[1].seed, "a fresh seed is one for all, as a given one is"


@every_model
@every_side
def test_codes_alone_are_those_of_the_text_as_written(
    model: str, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No samples are made."""
    pipeline, arguments = speaker(model, side), given(model)
    text = f"[S1] {TEXTS[0]}" if model == "dia" else TEXTS[0]
    plain = {"piece_seconds": None} if "piece_seconds" in SMALL[model].cut else {}
    expected = pipeline.generate(text, seed=5, as_written=True, **arguments, **plain)
    prompt = arguments.pop("prompt")
    prompts = None if prompt is None else [prompt] * 2
    monkeypatch.setattr(type(pipeline.engine), "launch", lambda *_: pytest.fail("samples were made"))
    for codes in pipeline.generate_codes([text, text], prompts, seed=5, **arguments):
        np.testing.assert_array_equal(codes, expected.codes)
        assert codes.dtype == np.int32


@every_model
@every_side
def test_seeds(model: str, side: str) -> None:
    """The same seed gives the same speech, another seed another; a fresh one is told, and can be given."""
    first, other = short(model, side), speaker(model, side).generate(TEXTS[0], seed=6, **given(model))
    assert first.codes.shape != other.codes.shape or (first.codes != other.codes).any()
    fresh = [speaker(model, side).generate(TEXTS[0], **given(model)) for _ in range(2)]
    assert None is not fresh[0].seed != fresh[1].seed
    again = speaker(model, side).generate(TEXTS[0], seed=fresh[0].seed, **given(model))
    assert_same(again, fresh[0])


@every_model
@every_side
@pytest.mark.parametrize("frames", [1, 5])
def test_a_limit_cuts_the_speech(model: str, side: str, frames: int) -> None:
    result = speaker(model, side).generate(TEXTS[0], seed=5, **given(model, max_frames=frames))
    assert result.codes.shape[1] <= frames
    assert result.finish_reason == "length"


@every_model
@every_side
def test_a_generation_is_cancelled(model: str, side: str) -> None:
    """By an event that any thread may set, here in `progress` and between two parts."""
    cancel, stages = threading.Event(), []

    def progress(now: Any) -> None:
        stages.append(now.stage)
        cancel.set()

    with pytest.raises(CancelledError):
        speaker(model, side).generate(TEXTS[0], **given(model), progress=progress, cancel=cancel)
    assert len(set(stages)) == 1
    cancel.clear()
    parts = speaker(model, side).stream(SENTENCES, cancel=cancel, **given(model, **SMALL[model].cut))
    next(parts)
    cancel.set()
    with pytest.raises(CancelledError):
        list(parts)


@every_model
@every_side
def test_too_little_memory_is_refused_before_any_network_runs(
    model: str, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = speaker(model, side)
    monkeypatch.setattr(type(pipeline.engine.host), "free_bytes", lambda *_: 1000)
    for call in (pipeline.generate, pipeline.stream):
        with pytest.raises(ResourceError, match=r"^memory: .* beside the weights"):
            call(TEXTS[0], **given(model))


@every_model
@every_side
def test_progress_is_told(model: str, side: str) -> None:
    told: list[Any] = []
    result = speaker(model, side).generate(TEXTS[0], seed=5, **given(model), progress=told.append)
    seconds = [now.seconds for now in told]
    assert seconds == sorted(seconds)
    assert (seconds[0], seconds[-1]) == (0, pytest.approx(result.audio_seconds))
    assert told[0].stage == FIRST_STAGES[model]


@every_model
@every_side
def test_noise_that_is_given_is_what_its_seed_gives(model: str, side: str) -> None:
    plain = {"piece_seconds": None} if "piece_seconds" in SMALL[model].cut else {}
    how = {**given(model), **plain}
    result = speaker(model, side).generate(TEXTS[0], noise=HostNoise(5), **how)
    seeded = speaker(model, side).generate(TEXTS[0], seed=5, **how)
    np.testing.assert_array_equal(result.codes, seeded.codes)
    np.testing.assert_array_equal(result.audio, seeded.audio)
    assert (result.seed, seeded.seed) == (None, 5)


@every_model
@every_side
def test_a_package_speaks_with_a_loaded_model(model: str, side: str) -> None:
    package = import_module(SIDES[side])
    result = package.generate(TEXTS[0], speaker(model, side), seed=5, **given(model))
    assert_same(result, short(model, side))
    with pytest.raises(UsageError, match=r"max_fram: .* no such argument; did you mean max_frames"):
        package.generate(TEXTS[0], speaker(model, side), **given(model), max_fram=2)


@every_model
@every_side
def test_a_typed_load_refuses_other_models(model: str, side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before weights are read."""
    form, device = type(speaker(model, side)), {"device": "cpu"} if side == "torch" else {}
    other = models.NAMES[models.NAMES.index(model) - 1]
    loaded = form.load(folder(model), **device)
    assert (type(loaded), loaded.engine.host.dtype) == (form, "float32")
    monkeypatch.setattr(f"{SIDES[side]}.loading._fill", lambda *_: pytest.fail("weights were read"))
    message = f"^model: the files contain {other}, not {model}; use load" + r"\(\) without a model$"
    with pytest.raises(UsageError, match=message):
        form.load(folder(other), **device)


@every_model
@every_side
def test_no_library_warns(model: str, side: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        speaker(model, side).generate(TEXTS[0], seed=1, **given(model))


@every_model
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"texts": TEXTS[0]}, "texts: got one string"),
        ({"texts": []}, "texts: the list is empty"),
        ({"texts": [TEXTS[0], "..."]}, "text( 2)?: there are no words"),
        ({"seed": [1]}, "seed: 1 value for 2 texts"),
        ({"seed": -1}, "seed: -1 is outside"),
        ({"prompts": [None] * 3}, "prompts: 3 "),
        ({"max_frames": 0}, "max_frames: 0 is outside"),
        ({"max_frames": 2.5}, r"max_frames: 2\.5 is not a whole number"),
        ({"max_frame": 9}, r"did you mean max_frames\?"),
        ({"temperature": -1.0}, r"temperature: -1\.0 is outside"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_batch_is_refused_before_any_text_is_spoken(
    model: str, changes: dict[str, Any], message: str
) -> None:
    voice = SMALL[model].voices[0]
    arguments = {"texts": [TEXTS[0], TEXTS[1]], "prompts": [voice, voice], **SMALL[model].options, **changes}
    with pytest.raises(UsageError, match=message) as caught:
        speaker(model, "mlx").generate_batch(**arguments)
    assert "\n" not in str(caught.value)


@every_model
@pytest.mark.parametrize("call", ["generate", "stream"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("... !", "there are no words in it"),
        ("[pause:1] ... <break/>", "there are no words in it"),
        ("<speak>Hello.</speak>", "<speak> is SSML"),
        ("Hello. [pause:soon] You.", r"\[pause\] at character 8 has no length"),
    ],
)
def test_what_cannot_be_spoken(model: str, call: str, text: str, message: str) -> None:
    """At the call, also of a stream."""
    with pytest.raises(UsageError, match=f"^text: {message}"):
        getattr(speaker(model, "torch"), call)(text, **given(model))

"""Dia2's pipeline on both sides: whole loops with sampling, recordings, long texts, text as it comes.

Everything but the networks is one pipeline for both sides: what does not concern them runs once.
"""

import logging
from pathlib import Path
from typing import cast

import mlx.core as mx
import numpy as np
import pytest
import torch

import mlx_port
import torch_ref
from converters.convert import Quantization, convert
from converters.published import open_published
from mlx_port.dia2.pipeline import Dia2Pipeline as MlxPipeline
from tests.contract.speakers import assert_same
from tests.tiny.dia2 import recording, write_published
from tests.tiny.networks import tiny, wide_config
from torch_ref.dia2.depformer import DepformerLayer
from torch_ref.dia2.pipeline import Dia2Pipeline as TorchPipeline
from tts_core.codecs.policy import CodecPolicy
from tts_core.dia2.options import Dia2Options
from tts_core.errors import GenerationError
from tts_core.prompt import Prompt, Reference, Word
from tts_core.results import GenerationResult, merge

pytestmark = pytest.mark.rest

TEXT = "[S1] Hello there friend. [S2] Oh, hello! (laughs) I can't wait."


@pytest.fixture(scope="module")
def pipeline(both) -> MlxPipeline:
    return both("v_main")[1]


@pytest.fixture(scope="module")
def usual(pipeline) -> GenerationResult:
    return pipeline.generate(TEXT, seed=5)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("v_main", {}),
        ("v_main", {"cfg_scale": 1.0, "temperature": 1.1, "top_k": 0}),
        ("v_main", {"temperature": 0, "action_temperature": 0}),
        ("v_main", {"cfg_scale": 6.0, "cfg_filter_k": 1}),
        ("v_text", {"cfg_scale": 3.0, "cfg_filter_k": 7, "action_temperature": 1.0, "top_k": 5}),
    ],
    ids=str,
)
def test_a_seed_gives_the_same_speech_on_both_sides(both, windows, name, changes):
    results = [each.generate(TEXT, seed=5, **changes) for each in both(name)]
    assert_same(*results, windows=windows(name))
    assert results[0].finish_reason == "stop"
    assert [word.text for word in results[0].words][:3] == ["Hello", "there", "friend."]
    assert results[0].codes.max() < both(name)[0].config.codebook_size


@pytest.mark.parametrize("include", [False, True])
def test_recordings_are_continued_alike(both, same, include):
    """The words of the recordings are in the result only if the recordings are."""
    results = [
        each.generate(TEXT, prompt=recording(), seed=2, include_prefix=include) for each in both("v_main")
    ]
    same(*results)
    first = [word.text for word in results[0].words][:2]
    assert first == (["Hello", "there,"] if include else ["Hello", "there"])


def test_a_stream_adds_up_to_the_whole(pipeline, same, usual):
    whole, parts = usual, list(pipeline.stream(TEXT, seed=5))
    same(whole, merge(parts))
    assert len(parts) > 3
    sizes = [part.codes.shape[1] for part in parts]
    assert sizes[:6] == [2, 2, 3, 3, 4, 5]
    rate, end = pipeline.codec_config.frame_rate, 0.0
    for part in parts[:-1]:  # words come with the sound in which they begin
        end += part.audio_seconds
        assert all(word.start < end for word in part.words)
    assert whole.audio_seconds == pytest.approx(whole.codes.shape[1] / rate)


def test_words_are_in_captions_and_follow_the_speed(pipeline, usual):
    slow = pipeline.generate(TEXT, seed=5, speed=0.5)
    for one, two in zip(usual.words, slow.words, strict=True):
        assert two.start == pytest.approx(2 * one.start)
    cues = usual.captions()
    assert tuple(word for cue in cues for word in cue.words) == usual.words
    assert "<00:00:00.160>[S1] Hello <00:00:00.640>there" in usual.captions().vtt()


@pytest.mark.parametrize("cut", [1, 10])
def test_breaks_in_text_that_comes_in_pieces(pipeline, same, cut):
    """They are no words: the second stream looks ahead past them."""
    text = f"[S1] One {'[pause:0.2] ' * 3}two {'[pause:0.2] ' * 2}three four."
    pieces = [text[start : start + cut] for start in range(0, len(text), cut)]
    same(pipeline.generate(text, seed=5), merge(list(pipeline.stream(iter(pieces), seed=5))))


def test_a_whole_result_has_the_codecs_longest_windows(pipeline, monkeypatch):
    """Its samples are those of the codec's own decode, in a batch too; a stream's windows are smaller."""
    codec = pipeline.engine.codec
    monkeypatch.setattr(codec, "policy", CodecPolicy(max_frames=7, first_frames=2))
    sizes: list[int] = []
    decode = codec.decode_window
    monkeypatch.setattr(
        codec, "decode_window", lambda codes, memory: sizes.append(codes.shape[2]) or decode(codes, memory)
    )
    one = pipeline.generate("[S1] Hello there friend.", seed=5)
    [batch] = pipeline.generate_batch(["[S1] Hello there friend."], seed=5)
    frames = one.codes.shape[1]
    assert frames > 14
    assert sizes == 2 * [min(7, frames - start) for start in range(0, frames, 7)]
    whole = np.clip(np.asarray(codec.decode(one.codes[None])[0]), -1, 1)
    np.testing.assert_array_equal(one.audio, whole)
    np.testing.assert_array_equal(batch.audio, whole)


def test_words_of_the_recordings_that_come_late_are_told(pipeline, caplog):
    first = recording().references[0]
    late = Reference(first.audio, None, sample_rate=24000, words=(Word("Hello", 0.1), Word("friend.", 1.4)))
    with caplog.at_level(logging.WARNING, logger="tts_core"):
        pipeline.generate("[S1] Yes.", prompt=Prompt((late,)), seed=1, max_frames=3)
    assert "1 word of the recordings will be spoken again" in caplog.text


def test_nan_is_traced_to_its_layer(converted):
    pipeline = MlxPipeline.load(converted("v_main"))
    layer = pipeline.engine.network.transformer.layers[1].mlp.wo
    layer.weight = layer.weight * float("nan")
    with pytest.raises(GenerationError, match=r"transformer\.layers\.1"):
        pipeline.generate(TEXT, seed=1)


def test_nan_is_traced_on_the_other_side(published):
    pipeline = TorchPipeline.load(published("v_main"), device="cpu", dtype="float32")
    with torch.no_grad():
        layer = cast(DepformerLayer, pipeline.engine.network.depformer.layers[0])
        layer.mlp.wo.weight.fill_(float("nan"))
    with pytest.raises(GenerationError, match=r"depformer\.layers\.0"):
        pipeline.generate(TEXT, seed=1)


@pytest.fixture(scope="module")
def wide(tmp_path_factory) -> Path:
    return write_published(tmp_path_factory.mktemp("wide") / "dia2", tiny(wide_config(), seed=3))


@pytest.mark.parametrize("how", ["bfloat16", "float16", "-q"])
def test_narrow_and_quantized_copies_speak(wide, tmp_path, how):
    """Both sides read the folder; the codes of narrow types may differ, the words do not."""
    quantization = Quantization("affine", 32, 8) if how == "-q" else None
    published = open_published(wide)
    assert published.parts["dia2"].config == wide_config()
    convert(published, tmp_path / "x", dtype="float32" if how == "-q" else how, quantization=quantization)
    port = mlx_port.load(tmp_path / "x")
    result = port.generate("Hello there.", seed=5)
    assert result.finish_reason == "stop"
    assert [word.text for word in result.words] == ["Hello", "there."]
    other = torch_ref.load(tmp_path / "x", device="cpu").generate("Hello there.", seed=5, max_frames=5)
    assert other.codes.shape == (5, 5)
    if how == "-q":  # the same dequantized weights
        np.testing.assert_array_equal(other.codes, result.codes[:, :5])
    mx.clear_cache()


def test_options_are_the_originals():
    options = Dia2Options()
    assert (options.cfg_scale, options.cfg_filter_k, options.initial_padding) == (2.0, 50, 2)
    assert (options.temperature, options.top_k) == (0.8, 50)
    assert (options.action_temperature, options.action_top_k) == (0.6, 50)

"""Qwen3-TTS's requests: what each mode needs, pieces, limits, and texts that are refused."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soxr

from converters.published import open_published
from tests.tiny.qwen3 import write_published
from tts_core.errors import UsageError
from tts_core.options import single_values
from tts_core.pipeline import PromptLike
from tts_core.prompt import Prompt
from tts_core.qwen3.config import BASE, CUSTOM_VOICE, MODES, VOICE_DESIGN
from tts_core.qwen3.layout import FRAME, NO_ID, SPEAKER, Qwen3Choice
from tts_core.qwen3.options import Qwen3Options
from tts_core.qwen3.request import Qwen3Facts, Qwen3Request
from tts_core.qwen3.tokenizer import CONFIG
from tts_core.serving.source import ModelSource

SAID = "An inn is near."
NEEDED: dict[str, dict[str, Any]] = {
    BASE: {},
    CUSTOM_VOICE: {"voice": "vivian"},
    VOICE_DESIGN: {"instruct": "An old sailor."},
}


def recording(text: str | None = None, seconds: float = 2.0) -> Prompt:
    time = np.arange(round(1500 * seconds)) / 1500
    return Prompt.of(np.sin(700 * time).astype(np.float32) / 3, text, sample_rate=1500)


@cache
def facts(mode: str, folder: Path) -> Qwen3Facts:
    published = open_published(write_published(folder / mode, mode), offline=True)
    parts = published.parts
    return Qwen3Facts.of(
        {kind: part.config for kind, part in parts.items()}, {"qwen3": parts["qwen3"].documents}
    )


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("qwen3")

    def asked(mode: str, text: str = "Hello.", prompt: PromptLike = None, **options: Any) -> Qwen3Request:
        if mode == BASE and prompt is None:
            prompt = recording()
        given = {**NEEDED[mode], **options}
        return facts(mode, folder).request(text, Qwen3Options(**{"seed": 1, **given}), prompt)

    asked.facts = lambda mode: facts(mode, folder)  # type: ignore[attr-defined]
    return asked


@pytest.mark.parametrize(
    ("mode", "options", "message"),
    [
        (CUSTOM_VOICE, {"voice": None}, "voice: .*one of vivian, eric"),
        (CUSTOM_VOICE, {"voice": "vivien"}, "voice: 'vivien' .*vivian"),
        (VOICE_DESIGN, {"instruct": None}, "instruct: .*needs a description"),
        (VOICE_DESIGN, {"voice": "vivian"}, "voice: .*CustomVoice"),
        (BASE, {"voice": "vivian"}, "voice: .*CustomVoice"),
        (BASE, {"instruct": "slow"}, "instruct: .*takes no instruction"),
        (CUSTOM_VOICE, {"language": "klingon"}, "language: 'klingon'"),
        (CUSTOM_VOICE, {"language": "sichuan_dialect"}, "language: "),
    ],
)
def test_what_a_mode_lacks_is_said(ask: Any, mode: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ask(mode, **options)


@pytest.mark.parametrize("mode", [CUSTOM_VOICE, VOICE_DESIGN])
def test_recordings_are_of_base_alone(ask: Any, mode: str) -> None:
    with pytest.raises(UsageError, match=r"prompt: only Qwen3-TTS Base"):
        ask(mode, prompt=recording())


def test_recordings_are_resampled_as_the_original_does(ask: Any) -> None:
    given = recording()
    faster = Prompt.of(given.one.audio, sample_rate=2000)
    assert given.one.audio is not None
    expected = soxr.resample(given.one.audio, 2000, 1500, quality="HQ")
    np.testing.assert_array_equal(ask(BASE, prompt=faster).voice.samples, expected)


@pytest.mark.parametrize("cut", range(8))
def test_a_resampled_recording_has_the_originals_length(ask: Any, cut: int) -> None:
    """librosa's: rounded up, zeros at the end; a sample less moves the speaker's vector by 1.8e-3."""
    audio = recording().one.audio
    assert audio is not None
    given = Prompt.of(audio[: len(audio) - cut], sample_rate=2000)
    samples = ask(BASE, prompt=given).voice.samples
    assert len(samples) == math.ceil((len(audio) - cut) * 0.75)
    short = soxr.resample(audio[: len(audio) - cut], 2000, 1500, quality="HQ")
    np.testing.assert_array_equal(samples[: len(short)], short[: len(samples)])
    assert not samples[len(short) :].any()


def test_base_needs_a_recording(ask: Any) -> None:
    with pytest.raises(UsageError, match=r"prompt: .*--ref-audio"):
        ask.facts(BASE).request("Hello.", Qwen3Options())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("token", ["<|im_end|>", "<|im_start|>"])
def test_control_tokens_are_refused_everywhere(ask: Any, mode: str, token: str) -> None:
    with pytest.raises(UsageError, match=r"text: contains .*controls the model"):
        ask(mode, f"Hello {token} there.")
    with pytest.raises(UsageError, match="text: contains"):
        ask(mode, f"Hello {token} there.", as_written=True)
    if mode == VOICE_DESIGN:
        with pytest.raises(UsageError, match="instruct: contains"):
            ask(mode, instruct=f"slow{token}")
    if mode == BASE:
        with pytest.raises(UsageError, match="transcript: contains"):
            ask(mode, prompt=recording(SAID + token))


def test_a_transcript_fits_its_recording_or_is_trusted(ask: Any) -> None:
    short = recording("a word " * 15, 1.5)
    with pytest.raises(UsageError, match=r"1\.5 s do not fit a transcript of 104 characters"):
        ask(BASE, prompt=short)
    assert ask(BASE, prompt=short, trust_transcript=True, max_frames=3).voice.transcript


def test_layouts_of_voices(ask: Any) -> None:
    """A speaker, a vector, the frames of a recording; nothing for a designed voice."""
    spoken = {
        mode: set(ask(mode).pieces[0].layout.codec[ask(mode).pieces[0].layout.codec < 0].tolist())
        for mode in MODES
    }
    assert spoken == {BASE: {NO_ID, SPEAKER}, CUSTOM_VOICE: {NO_ID}, VOICE_DESIGN: {NO_ID}}
    assert 1050 in ask(CUSTOM_VOICE).pieces[0].layout.codec
    continued = ask(BASE, prompt=recording(SAID))
    assert (continued.pieces[0].layout.codec == FRAME).sum() == continued.voice.frames > 0
    assert ask(CUSTOM_VOICE, layout="streamed").pieces[0].layout.trailing
    assert not ask(BASE, layout="whole").pieces[0].layout.trailing
    assert ask(BASE).pieces[0].layout.trailing


def test_speech_has_an_end(ask: Any) -> None:
    """By the pace of its language, or where the caller says; the context is the most."""
    rate = ask.facts(CUSTOM_VOICE).codec.frame_rate
    [piece] = ask(CUSTOM_VOICE, "One.", language="english").pieces
    assert piece.frames == min(300 - len(piece.layout.text), int(np.ceil((4 / (987 / 60 * 0.3) + 2) * rate)))
    assert ask(CUSTOM_VOICE, max_frames=7).pieces[0].frames == 7
    assert ask(CUSTOM_VOICE, max_seconds=1.0).pieces[0].frames == int(np.ceil(rate))


def test_long_texts_are_cut_after_sentences(ask: Any) -> None:
    text = "河水慢慢地流过。老磨坊还在那里！春天来了？"
    pieces = ask(CUSTOM_VOICE, text, language="chinese", piece_seconds=3.0).pacing.texts
    assert pieces == ("河水慢慢地流过。", "老磨坊还在那里！", "春天来了？")
    assert ask(VOICE_DESIGN, text, piece_seconds=3.0).pacing.texts == (text,)
    paused = ask(VOICE_DESIGN, "One. [pause:0.5] Two.")
    assert len(paused.pieces) == 2
    assert 0.5 in paused.pacing.silences
    assert len({piece.noise.uniform(0, (3,)).tobytes() for piece in paused.pieces}) == 2


def test_a_text_that_is_short_enough_is_read_as_it_is(ask: Any) -> None:
    assert ask(CUSTOM_VOICE, "\n Hello  there. ").pacing.texts == ("\n Hello  there. ",)


def test_settings_are_the_checkpoints_unless_given(ask: Any) -> None:
    own = ask.facts(CUSTOM_VOICE).sampling
    assert ask(CUSTOM_VOICE).sampling == own
    greedy = ask(CUSTOM_VOICE, temperature=0.0, subtalker_temperature=0.5, repetition_penalty=1.0).sampling
    assert greedy.first.is_greedy
    assert greedy.others == Qwen3Choice(temperature=0.5, top_k=own.others.top_k, top_p=own.others.top_p)
    assert greedy.repetition_penalty == 1


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_rehearses(ask: Any, mode: str) -> None:
    assert ask.facts(mode).rehearsal().job().frames == 3


def test_requests_of_a_checkpoint_share_its_tokenizer(tmp_path: Path) -> None:
    folder = write_published(tmp_path / "published")

    def asked() -> Qwen3Request:
        parts = open_published(folder, offline=True).parts
        configs = {kind: part.config for kind, part in parts.items()}
        documents = {kind: part.documents for kind, part in parts.items()}
        return ModelSource("qwen3", configs, documents, pytest.fail).request(
            "Hello.", NEEDED[CUSTOM_VOICE], None
        )

    first = asked().facts.tokenizer
    assert asked().facts.tokenizer is first
    changed = json.loads((folder / CONFIG).read_text("utf-8"))
    changed["added_tokens_decoder"]["7"] = {"content": "<|more|>"}
    (folder / CONFIG).write_text(json.dumps(changed), "utf-8")
    other = asked().facts.tokenizer
    assert (other.first_added("<|more|>"), first.first_added("<|more|>")) == ("<|more|>", None)


def test_texts_of_options_are_bounded() -> None:
    assert single_values(Qwen3Options, {"language": "english"}) == {"language": "english"}
    for value in (3, ["english"], "x" * 41):
        with pytest.raises(UsageError, match="language: "):
            single_values(Qwen3Options, {"language": value})

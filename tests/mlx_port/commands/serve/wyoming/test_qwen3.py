"""Qwen3-TTS behind the Wyoming port: voices that are described, and the client's language."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wyoming.tts import Synthesize, SynthesizeVoice

from mlx_port.commands.serve.service import Service
from mlx_port.commands.serve.wyoming.info import LANGUAGES, language_of
from tests.mlx_port.commands.serve.served import Talk, recording
from tests.mlx_port.commands.serve.test_qwen3 import source_of, spoken
from tests.mlx_port.commands.serve.wyoming.asking import (
    answered,
    described,
    sound,
    wyoming_server,
)
from tts_core import models
from tts_core.qwen3.config import BASE, CUSTOM_VOICE, VOICE_DESIGN

pytestmark = pytest.mark.rest


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    sources = {mode: source_of(mode) for mode in (CUSTOM_VOICE, BASE, VOICE_DESIGN)}
    with wyoming_server(tmp_path_factory.mktemp("voices"), sources) as found:
        yield found


def test_voices_that_can_speak_are_described(server: Any) -> None:
    """A designed voice needs an instruction, which the protocol lacks; a recording has to be configured."""

    def names() -> list[str]:
        [program] = described(server).tts
        assert all(voice.languages == list(LANGUAGES) for voice in program.voices)
        return [voice.name for voice in program.voices]

    assert names() == ["vivian", "eric"]
    server.service.voices.add("anna", [recording()], [None], "yes")
    assert names() == ["vivian", "eric", f"{BASE}/anna"]
    server.service.voices.remove("anna")


@pytest.mark.parametrize(
    ("voice", "speaker", "language"),
    [
        (None, "vivian", "auto"),
        (SynthesizeVoice(name="eric"), "eric", "auto"),
        (SynthesizeVoice(language="zh_CN"), "vivian", "chinese"),
        (SynthesizeVoice(language="en"), "vivian", "english"),
        (SynthesizeVoice(language="nl"), "vivian", "auto"),
    ],
)
def test_the_clients_language_is_the_models(
    server: Any,
    monkeypatch: pytest.MonkeyPatch,
    voice: SynthesizeVoice | None,
    speaker: str,
    language: str,
) -> None:
    configure(monkeypatch, max_seconds=0.3, seed=5)
    found = answered(server, Synthesize(text="The inn.", voice=voice).event(), end="audio-stop")
    heard = np.frombuffer(sound(found), "<i2")
    np.testing.assert_allclose(heard, spoken(speaker, language=language), rtol=0, atol=1.01)


def configure(monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
    """Give options to every request, which the protocol cannot."""
    order = Service.order

    def ordered(self: Service, asked: Any) -> Any:
        found = order(self, asked)
        return replace(found, options={**found.options, **options})

    monkeypatch.setattr(Service, "order", ordered)


def test_a_model_without_the_option_takes_no_language(tmp_path: Path) -> None:
    with wyoming_server(tmp_path / "voices", Talk()) as server:
        assert language_of(server.service, "en") == {}


def test_every_language_has_a_name() -> None:
    assert set(models.MODELS["qwen3"].languages) == set(LANGUAGES)

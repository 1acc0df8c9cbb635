"""Dia2 behind the server: words with their times as events, and several speeches in one batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.mlx_port.commands.serve.served import SOON, Served, recording, served
from tests.mlx_port.commands.serve.spoken import events, pieces_of, sound_of
from tests.tiny.dia2 import published_dia2
from tts_core.results import join

pytestmark = pytest.mark.rest

TEXT = "[S1] Hello there friend. [S2] Oh, hello! (laughs) I can't wait."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    from converters.convert import convert
    from converters.published import open_published

    made = tmp_path_factory.mktemp("dia2") / "model"
    convert(
        open_published(published_dia2(tmp_path_factory.mktemp("dia2") / "published")), made, dtype="float32"
    )
    return made


@pytest.fixture(scope="module")
def dia2(folder: Path, tmp_path_factory: pytest.TempPathFactory):
    with served(tmp_path_factory.mktemp("voices"), source_of(folder)) as found:
        yield found


def source_of(folder: Path) -> Any:
    from mlx_port.dia2.pipeline import assemble
    from mlx_port.loading import open_parts
    from tts_core.serving.source import ModelSource

    parts = open_parts(folder)
    return ModelSource("dia2", parts.configs, parts.documents, lambda: assemble(open_parts(folder)))


@pytest.fixture(scope="module")
def alone(folder: Path) -> Any:
    from mlx_port import Dia2Pipeline

    return Dia2Pipeline.load(folder)


def speak(server: Served, text: str, **more: Any) -> list[dict[str, Any]]:
    return events(server.post(input=text, response_format="wav", stream_format="sse", **more))


def test_words_are_events_with_their_times(dia2: Served, alone: Any) -> None:
    """Before the sound in which they begin; a turn's piece has its own, with ends."""
    found = speak(dia2, TEXT, seed=5, pieces=True)
    words = [event for event in found if event["type"] == "speech.audio.word"]
    expected = alone.generate(TEXT, seed=5)
    assert [(one["text"], one["start"]) for one in words] == [(one.text, one.start) for one in expected.words]
    first = next(place for place, event in enumerate(found) if event["type"] == "speech.audio.delta")
    assert found.index(words[-1]) > first  # not all at once
    turns = pieces_of(found)
    assert len(turns) == 2
    said = [word for turn in turns for word in turn["words"]]
    assert [word["text"] for word in said] == [word["text"] for word in words]
    assert all(word["end"] >= word["start"] for word in said)
    assert len(sound_of(found)) == len(expected.audio)


def test_text_that_is_fed_is_spoken_before_it_ends(dia2: Served, alone: Any) -> None:
    """Words, not sentences: the first sound comes while the text goes on."""
    speech = dia2.service.engine.submit("talk", "[S1] Hello there fri", options={"seed": 5}, more=True)
    speech.feed("end. [S2] Oh, hello!")
    parts = [speech.get(SOON)]
    assert parts[0] is not None
    assert speech.state == "speaking"
    speech.feed(" (laughs) I can't wait.")
    speech.end()
    parts += [*speech]
    whole = join([part for part in parts if part is not None])
    expected = alone.generate(TEXT, seed=5)
    np.testing.assert_array_equal(whole.codes, expected.codes)
    assert whole.words == expected.words


LONG = "[S1] " + "Hello there friend. Oh, hello! I can't wait. " * 6  # a turn in several pieces


def test_pieces_are_spoken_again_with_a_recording(dia2: Served) -> None:
    """The same sound with the piece's own seed; without a recording only the whole text has its voice."""
    found = pieces_of(speak(dia2, LONG, seed=5, pieces=True))
    assert len(found) > 1
    assert [piece["again"] for piece in found] == [None] * len(found)
    dia2.service.voices.add("own", [recording(2.0)], ["These are twenty letters."], "yes")
    told = speak(dia2, LONG, seed=5, pieces=True, voice="own")
    sound, last = sound_of(told), pieces_of(told)[-1]
    again = sound_of(events(dia2.post(**last["again"], response_format="wav", stream_format="sse")))
    rate = 24000
    start, end = round(last["start"] * rate), round(last["end"] * rate)
    assert len(again) == end - start
    fade = round(0.02 * rate)
    np.testing.assert_array_equal(again[fade:], sound[start + fade : end])


def test_text_over_a_socket_does_not_wait_for_sentences(dia2: Served, alone: Any) -> None:
    """Sound comes before any sentence is complete; the speech is that of the whole text."""
    pytest.importorskip("websockets", reason="websockets is not installed: extra serve")
    from tests.mlx_port.commands.serve.live.client import client

    pieces = ["[S1] Hello there my fri", "end and so on and on it goes", " with you. [S2] Oh!"]
    expected = alone.generate("".join(pieces), seed=5)
    with client(dia2) as found:
        found.send("start", seed=5)
        for piece in pieces[:2]:
            found.send("text", text=piece)
        found.listen(2 * 1920)
        found.send("text", text=pieces[2])
        found.send("end")
        found.end()
    words = [event for event in found.events if event["type"] == "word"]
    assert [(word["text"], word["start"]) for word in words] == [
        (one.text, one.start) for one in expected.words
    ]
    assert len(found.sound) == 2 * len(expected.audio)
    assert found.events[-1] == {"type": "done", "finish_reason": "stop"}


def test_text_over_wyoming_does_not_wait_for_sentences(folder: Path, tmp_path: Path) -> None:
    """Sound comes while the first sentence goes on."""
    pytest.importorskip("wyoming", reason="wyoming is not installed: extra wyoming")
    from wyoming.client import AsyncTcpClient
    from wyoming.event import Event
    from wyoming.tts import SynthesizeChunk, SynthesizeStart, SynthesizeStop

    from tests.mlx_port.commands.serve.wyoming.asking import asked, sound, until_type, wyoming_server

    async def speak(client: AsyncTcpClient) -> list[Event | None]:
        await client.write_event(SynthesizeStart().event())
        for text in ("[S1] Hello there my fri", "end and so on and on it goes"):
            await client.write_event(SynthesizeChunk(text=text).event())
        found = [await client.read_event() for _ in range(2)]
        await client.write_event(SynthesizeChunk(text=" with you. [S2] Oh!").event())
        await client.write_event(SynthesizeStop().event())
        return [*found, *await until_type(client, "synthesize-stopped")]

    with wyoming_server(tmp_path / "voices", source_of(folder)) as server:
        found = [event for event in asked(server, speak) if event is not None]
    assert [event.type for event in found[:2]] == ["audio-start", "audio-chunk"]
    assert [event.type for event in found[-2:]] == ["audio-stop", "synthesize-stopped"]
    begun = sound([*found[:2], found[-2]])
    assert 0 < len(begun) < len(sound(found[:-1])) / 2

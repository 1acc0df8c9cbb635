"""The routes of voices."""

from __future__ import annotations

import io
import os
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile

from mlx_port.commands.serve.settings import Limits, Settings
from tests.mlx_port.commands.serve.served import SOON, Served, Talk, error_of, recording, served

SAID = "Twenty characters it is."


def sound(seconds: float = 2.0, form: str = "WAV") -> bytes:
    file = io.BytesIO()
    soundfile.write(file, *recording(seconds), format=form)
    return file.getvalue()


def add(server: Served, files: Any = None, **fields: Any) -> httpx.Response:
    data = {"name": "anna", "consent": "true", "transcript": SAID} | fields
    data = {name: value for name, value in data.items() if value is not None}
    files = [("audio_sample", ("../../etc/cron.d/x", sound(), "audio/wav"))] if files is None else files
    return httpx.post(server.url + "/v1/audio/voices", data=data, files=files, timeout=SOON)


def test_a_voice_is_added_listed_used_and_deleted(tmp_path) -> None:
    source = Talk()
    with served(tmp_path / "voices", source) as server:
        response = add(server)
        assert response.status_code == 200
        voice = response.json()
        assert (voice["id"], voice["name"], voice["object"]) == ("anna", "anna", "audio.voice")
        assert voice["recordings"] == [{"seconds": 2.0, "has_transcript": True}]
        listed = server.get("/v1/audio/voices").json()
        assert listed["voices"] == listed["data"]
        assert [each["id"] for each in listed["voices"]][:3] == ["anna", "alloy", "ash"]
        assert {each["name"] for each in listed["voices"]} >= {"anna", "shimmer"}
        assert server.post(input="one", voice="anna").status_code == 200
        [(_, _, prompt)] = source.asked
        assert prompt.one.text == SAID
        np.testing.assert_allclose(prompt.one.audio, recording()[0], atol=1e-4)
        again = add(server)
        assert (again.status_code, error_of(again)["code"]) == (409, "voice_exists")
        gone = httpx.delete(server.url + "/v1/audio/voices/anna", timeout=SOON)
        assert gone.json() == {"id": "anna", "object": "audio.voice.deleted", "deleted": True}
        assert httpx.delete(server.url + "/v1/audio/voices/anna", timeout=SOON).status_code == 404
        assert error_of(server.post(input="one", voice="anna"))["code"] == "voice_not_found"
        assert os.listdir(tmp_path / "voices") == []


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"consent": "true"}, "true"),
        ({"consent": " I Agree "}, " I Agree "),
        ({"consent": "YES"}, "YES"),
        ({"consent": "agreed", "consent_note": "Anna, on 1 May."}, "Anna, on 1 May."),
    ],
)
def test_words_of_consent(tmp_path, fields: dict[str, str], kept: str) -> None:
    with served(tmp_path / "voices") as server:
        assert add(server, **fields).status_code == 200
        assert server.service.voices.voice("anna").consent == kept


@pytest.mark.parametrize("form", ["FLAC", "OGG", "MP3"])
def test_formats_of_uploads(server: Served, form: str) -> None:
    assert add(server, [("audio_sample", ("a", sound(form=form)))]).status_code == 200


def test_a_voice_of_two_speakers(server: Served) -> None:
    files = [("audio_sample", ("a", sound())), ("audio_sample", ("b", sound(3)))]
    assert error_of(add(server, files))["param"] == "transcript"
    assert len(add(server, files, transcript=[SAID, SAID]).json()["recordings"]) == 2


BAD: list[tuple[dict[str, Any], str | None]] = [
    ({"consent": None}, "consent"),
    ({"consent": ""}, "consent"),
    ({"consent": " "}, "consent"),
    ({"consent": "false"}, "consent"),
    ({"consent": "x" * 5000}, "consent"),
    ({"consent": "n"}, "consent"),
    ({"consent": "I do not agree"}, "consent"),
    ({"consent": "1"}, "consent"),
    ({"consent_note": "x" * 5000}, "consent"),
    ({"consent_note": " "}, "consent"),
    ({"consent": ["true", "true"]}, "consent"),
    ({"name": None}, "name"),
    ({"name": ""}, "name"),
    ({"name": "../up"}, "name"),
    ({"name": "a/b"}, "name"),
    ({"name": "x" * 65}, "name"),
    ({"transcript": ""}, "transcript"),
    ({"transcript": " "}, "transcript"),
    ({"transcript": "word " * 2000}, "transcript"),
    ({"transcript": "word " * 60}, "audio_sample"),
    ({"speaker_description": "old"}, "speaker_description"),
    ({"ref_text": SAID}, "ref_text"),
    ({"files": []}, None),
    ({"files": [("audio_sample", ("a", b""))]}, "audio_sample"),
    ({"files": [("audio_sample", ("a", b"not a sound" * 99))]}, "audio_sample"),
    ({"files": [("audio_sample", ("a", sound(0.5)))]}, "audio_sample"),
    ({"files": [("audio_sample", ("a", sound(5)))]}, "audio_sample"),
    ({"files": [("audio", ("a", sound()))]}, "audio"),
]


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """Takes uploads of 4 s."""
    settings = Settings(limits=Limits(upload_seconds=4))
    with served(tmp_path_factory.mktemp("short") / "voices", settings=settings) as server:
        yield server


@pytest.mark.parametrize(("change", "field"), BAD, ids=[str(change)[:40] for change, _ in BAD])
def test_bad_uploads_are_named(short: Served, change, field) -> None:
    response = add(short, **change)
    assert response.status_code == 400
    assert error_of(response)["param"] == field
    assert not short.service.voices.folder.exists()


def flac(seconds: float, rate: int) -> bytes:
    """A long file of few bytes."""
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", rate, 1, "PCM_16", format="FLAC") as sound:
        for _ in range(round(seconds / 10)):
            sound.write(np.zeros(10 * rate, np.int16))
    return file.getvalue()


@pytest.mark.parametrize(("rate", "seconds", "longest"), [(8000, 1790, 120), (600_000, 50, 38.4)])
def test_an_upload_is_decoded_no_further_than_its_limit(
    server: Served, monkeypatch, rate: int, seconds: float, longest: float
) -> None:
    """1,790 s in a few hundred kilobytes: neither the time nor the memory of all of it."""
    read, blocks = soundfile.SoundFile.read, []

    def noted(sound: soundfile.SoundFile, *given: Any, **named: Any) -> np.ndarray:
        blocks.append(read(sound, *given, **named).copy())
        return blocks[-1]

    monkeypatch.setattr(soundfile.SoundFile, "read", noted)
    data = flac(seconds, rate)
    response = add(server, files=[("audio_sample", ("a", data))])
    error = error_of(response)
    assert (response.status_code, error["param"]) == (400, "audio_sample")
    assert error["message"].startswith(f"audio_sample: the upload is longer than {longest:g} s; send a ")
    assert sum(map(len, blocks)) == longest * rate + 1


def test_bodies_that_are_no_form(shared: Served) -> None:
    path = shared.url + "/v1/audio/voices"
    for headers in (
        {"content-type": "multipart/form-data"},
        {"content-type": "multipart/form-data; boundary=x"},
        {},
    ):
        response = httpx.post(path, content=b"--x\r\nnonsense", headers=headers, timeout=SOON)
        assert response.status_code == 400
        error_of(response)


def test_an_upload_that_is_too_large(tmp_path) -> None:
    with served(tmp_path / "voices", settings=Settings(limits=Limits(upload=10_000))) as server:
        response = add(server)
        assert (response.status_code, error_of(response)["code"]) == (413, "too_large")
        assert not (tmp_path / "voices").exists()

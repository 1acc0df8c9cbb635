"""The routes of voices."""

from __future__ import annotations

import io
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile

from mlx_port.commands.serve import recordings
from mlx_port.commands.serve.errors import ApiError
from mlx_port.commands.serve.names import check_voice
from mlx_port.commands.serve.settings import Limits, Settings
from tests.mlx_port.commands.serve.served import SOON, Served, Talk, error_of, recording, served
from tts_core.serving.voices import RECORD

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
        ({"consent": " I Agree "}, " I Agree "),
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


def test_uploads_are_kept_whole_or_refused(server: Served) -> None:
    """A joined file stopped at the end of its first sound; integers' values were clipped."""
    voice = add(server, [("audio_sample", ("a", sound(form="OGG") * 2))], transcript=SAID * 2).json()
    assert voice["recordings"] == [{"seconds": 4.0, "has_transcript": True}]
    file = io.BytesIO()
    soundfile.write(file, np.array([0, 13760.0] * 9999), 16000, format="WAV", subtype="FLOAT")
    error = error_of(add(server, [("audio_sample", ("a", file.getvalue()))], name="loud"))
    assert error["message"].startswith("audio_sample: the upload: its peak is 13760 at a full scale of 1; ")


def test_a_voice_of_two_speakers(server: Served) -> None:
    files = [("audio_sample", ("a", sound())), ("audio_sample", ("b", sound(3)))]
    assert error_of(add(server, files))["param"] == "transcript"
    assert len(add(server, files, transcript=[SAID, SAID]).json()["recordings"]) == 2


BAD: list[tuple[dict[str, Any], str | None]] = [
    ({"consent": None}, "consent"),
    ({"consent": " "}, "consent"),
    ({"consent": "I do not agree"}, "consent"),
    ({"consent_note": "x" * 5000}, "consent"),
    ({"consent_note": " "}, "consent"),
    ({"consent": ["true", "true"]}, "consent"),
    ({"name": None}, "name"),
    ({"name": "../up"}, "name"),
    ({"name": "x" * 65}, "name"),
    ({"transcript": " "}, "transcript"),
    ({"transcript": "word " * 2000}, "transcript"),
    ({"transcript": "word " * 60}, "audio_sample"),
    ({"ref_text": SAID}, "ref_text"),
    ({"files": []}, None),
    ({"files": [("transcript", (None, SAID))], "transcript": None}, "audio_sample"),
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


@pytest.mark.parametrize(
    ("rate", "seconds", "files", "most", "longest"),
    [
        (8000, 1790, 1, 120 * 8000, "the upload is longer than 120 s"),
        (600_000, 50, 1, 120 * 48_000, "the upload is longer than 9.6 s"),
        (192_000, 40, 1, 120 * 48_000, "the upload is longer than 30 s"),
        (8000, 50, 8, 120 * 8000, "the recordings are longer than 120 s together"),
        (192_000, 20, 2, 120 * 48_000, "the recordings are longer than 30 s together"),
    ],
)
def test_uploads_are_decoded_no_further_than_their_limit(
    server: Served, monkeypatch, rate: int, seconds: float, files: int, most: int, longest: str
) -> None:
    """Neither the time nor the memory of all of a file of few bytes, alone or with others in a form.

    As many samples as 120 s at 48 kHz have: a file of a higher rate may be shorter.
    """
    read, decoded = soundfile.SoundFile.read, list[int]()

    def noted(sound: soundfile.SoundFile, *given: Any, **named: Any) -> np.ndarray:
        block = read(sound, *given, **named)
        decoded.append(len(block))
        return block

    monkeypatch.setattr(soundfile.SoundFile, "read", noted)
    data = flac(seconds, rate)
    response = add(server, [("audio_sample", (str(n), data)) for n in range(files)], transcript=None)
    error = error_of(response)
    assert (response.status_code, error["param"]) == (400, "audio_sample")
    assert error["message"].startswith(f"audio_sample: {longest}; ")
    assert sum(decoded) == most + 1


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


@pytest.mark.parametrize("model", ["dia", "mars5"])
def test_case_counts_in_the_name_of_a_stored_voice(tmp_path, model: str) -> None:
    """With a model that may speak without a recording, and with one that needs one."""
    with served(tmp_path / "voices", Talk(model)) as server:
        assert add(server).status_code == 200
        assert server.post(input="one", voice="anna").status_code == 200
        for path, body in (
            ("/v1/audio/speech", {"input": "one", "voice": "Anna"}),
            ("/v1/audio/speech/batch", {"items": [{"input": "one", "voice": "Anna"}]}),
        ):
            response = server.post(path, **body)
            error = error_of(response)
            assert (response.status_code, error["code"]) == (400, "voice_not_found")
            assert "'Anna' is not there; did you mean anna?" in error["message"]


@pytest.mark.parametrize(
    ("name", "is_known"), [("Vivian", True), ("VIVIAN", True), ("Anna", False), ("anna", True)]
)
def test_case_does_not_count_in_the_name_of_a_built_in_voice(name: str, is_known: bool) -> None:
    if is_known:
        check_voice(name, ["anna"], ["vivian"])
    else:
        with pytest.raises(ApiError, match="did you mean anna"):
            check_voice(name, ["anna"], ["vivian"])


class Gate:
    """Notes how many forms are decoded at once."""

    def __init__(self) -> None:
        self.both = threading.Barrier(2)
        self.together = False

    def __call__(self, *given: Any, **named: Any) -> tuple[np.ndarray, int]:
        try:
            self.both.wait(0.5)
            self.together = True
        except threading.BrokenBarrierError:
            pass
        return recording()


def test_one_form_is_decoded_at_a_time(server: Served, monkeypatch) -> None:
    gate = Gate()
    monkeypatch.setattr(recordings, "read_audio_at_its_rate", gate)
    with ThreadPoolExecutor(2) as pool:
        made = [pool.submit(add, server, name=name) for name in ("one", "two")]
    assert [each.result().status_code for each in made] == [200, 200]
    assert not gate.together


@pytest.mark.parametrize("damage", ["1" + "0" * 400, '"nan"', "-1", "{}"])
def test_a_damaged_voice_is_not_listed_and_refused_by_name(server: Served, damage: str) -> None:
    """Whatever its record or its recording is, nobody else's request fails."""
    assert add(server).status_code == 200
    assert add(server, name="bob").status_code == 200
    folder = server.service.voices.folder
    record = folder / "anna" / RECORD
    record.write_text(record.read_text().replace("2.0", damage))
    (folder / "bob" / "1.wav").write_bytes(b"RIFF")
    listed = server.get("/v1/audio/voices")
    assert listed.status_code == 200
    assert [each["id"] for each in listed.json()["data"]][:2] == ["bob", "alloy"]
    for name in ("anna", "bob"):
        error = error_of(server.post(input="one", voice=name))
        assert (error["param"], error["code"]) == ("voice", "voice_damaged")
        assert error["message"] == f"voice: {name} is damaged; remove it and add it again"

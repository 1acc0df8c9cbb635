"""POST /v1/audio/encode: every format, as a complete file."""

from __future__ import annotations

import io
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile

from mlx_port.commands.serve.settings import Limits, Settings
from tests.mlx_port.commands.serve.served import SOON, Served, error_of, served
from tts_core.audio.formats.names import FORMATS

RATE = 16000
TONE = np.rint(8000 * np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE)).astype("<i2")
PCM = f"audio/pcm;rate={RATE};channels=1"


def encode(server: Served, body: bytes = TONE.tobytes(), kind: str = PCM, **query: str) -> httpx.Response:
    url = server.url + "/v1/audio/encode"
    return httpx.post(url, params=query, content=body, headers={"content-type": kind}, timeout=SOON)


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in ("pcm", "aac")])
def test_formats_that_libsndfile_reads(server: Served, name: str) -> None:
    """The tone of a second, with its length in the header."""
    response = encode(server, response_format=name)
    assert response.status_code == 200
    sound, rate = soundfile.read(io.BytesIO(response.content))
    assert str(rate) == response.headers["x-sample-rate"]
    assert soundfile.info(io.BytesIO(response.content)).duration == pytest.approx(1, abs=0.1)
    spectrum = np.abs(np.fft.rfft(sound[:rate]))
    assert np.argmax(spectrum) * rate / len(sound[:rate]) == pytest.approx(440, abs=3)
    if name in ("wav", "flac"):
        np.testing.assert_array_equal(np.rint(sound * 32768).astype(int), TONE)


def test_aac_and_pcm(server: Served) -> None:
    pytest.importorskip("av", reason="PyAV is not installed: extra formats")
    assert encode(server, response_format="aac").content[:2] in (b"\xff\xf1", b"\xff\xf9")
    pcm = encode(server, response_format="pcm")
    assert pcm.headers["content-type"] == "audio/pcm;rate=24000;channels=1"
    assert len(pcm.content) == pytest.approx(48000, abs=200)


def test_mp3_is_the_default(server: Served) -> None:
    assert encode(server).headers["content-type"] == "audio/mpeg"


@pytest.mark.parametrize("rate", [1000, 48000])
def test_the_limits_of_the_rate(shared: Served, rate: int) -> None:
    kind = f"audio/pcm;rate={rate};channels=1"
    assert encode(shared, kind=kind, response_format="wav").status_code == 200


BAD: list[tuple[dict[str, Any], int, str | None]] = [
    ({"response_format": "midi"}, 400, "response_format"),
    ({"format": "mp3"}, 400, "format"),
    ({"kind": "audio/wav"}, 400, None),
    ({"kind": "audio/pcm"}, 400, None),
    ({"kind": "audio/pcm;rate=16000;channels=2"}, 400, None),
    ({"kind": "audio/pcm;rate=999;channels=1"}, 400, None),
    ({"kind": "audio/pcm;rate=48001;channels=1"}, 400, None),
    ({"body": b""}, 400, None),
    ({"body": b"abc"}, 400, None),
]


@pytest.mark.parametrize(("change", "status", "field"), BAD, ids=[str(each[0]) for each in BAD])
def test_bad_requests_are_named(shared: Served, change, status, field) -> None:
    response = encode(shared, **change)
    assert response.status_code == status
    assert error_of(response)["param"] == field


def test_more_sound_than_a_speech_may_be(tmp_path) -> None:
    with served(tmp_path, settings=Settings(limits=Limits(audio_seconds=0.9))) as server:
        response = encode(server)
        assert (response.status_code, error_of(response)["code"]) == (413, "too_large")

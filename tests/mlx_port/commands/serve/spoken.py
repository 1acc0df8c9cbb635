"""Speech of a server's answers, as samples and events."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import numpy as np

HEADER = 44  # bytes of a WAV file


def samples(wav: bytes) -> np.ndarray:
    """(L,) int16 of a WAV file of a stream."""
    return np.frombuffer(wav[HEADER:], "<i2")


def events(response: httpx.Response) -> list[dict[str, Any]]:
    """The events of a stream."""
    assert response.status_code == 200, response.text
    return [json.loads(line.removeprefix("data: ")) for line in response.text.split("\n\n") if line]


def sound_of(found: list[dict[str, Any]]) -> np.ndarray:
    """(L,) int16 of the events of a stream of WAV."""
    deltas = [event["audio"] for event in found if event["type"] == "speech.audio.delta"]
    return samples(b"".join(map(base64.b64decode, deltas)))


def pieces_of(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events of pieces."""
    return [event for event in found if event["type"] == "speech.audio.piece"]

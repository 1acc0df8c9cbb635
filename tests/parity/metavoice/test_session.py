"""Requests in a running batch say what they say by themselves, whoever else is served; on both sides."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlx_port
import torch_ref
from tests.tiny.metavoice_pipeline import LONG, TEXT, Ending, write_model
from tts_core.errors import CancelledError, ResourceError
from tts_core.metavoice.options import MetaVoiceOptions
from tts_core.metavoice.request import Request
from tts_core.results import join
from tts_core.serving.session import Failed
from tts_core.text.pace import CHARACTERS_PER_SECOND

pytestmark = pytest.mark.rest

MOST = 13 / CHARACTERS_PER_SECOND  # seconds per piece: three pieces in LONG


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder: Path = write_model(tmp_path_factory.mktemp("metavoice"))
    return {
        "torch": torch_ref.MetaVoicePipeline.load(folder, device="cpu"),
        "mlx": mlx_port.MetaVoicePipeline.load(folder),
    }


@pytest.fixture(params=["torch", "mlx"])
def side(request: pytest.FixtureRequest, sides: dict[str, Any]) -> Any:
    return sides[request.param]


def asked(side: Any, seed: int, **changes: Any) -> Request:
    """A request with a voice, a length and settings of its own."""
    random = np.random.default_rng(seed)
    vector = random.normal(0, 0.1, side.facts.first.speaker_embedding_size).astype(np.float32)
    given: dict[str, Any] = {"seed": seed, "max_frames": int(random.integers(1, 15))}
    text = TEXT
    match int(random.integers(0, 5)):
        case 0:
            text, given["piece_seconds"], given["speed"] = LONG, MOST, 1.1
        case 1:
            given |= {"cfg_scale": (2.0, 1.5), "top_p": 0.8}
        case 2:
            given |= {"cfg_scale": 1.0, "temperature": 0.8}
        case 3:
            given |= {"noise": Ending(seed, 6), "decoder": "mbd"}
    return side.request(text, MetaVoiceOptions(**given | changes), vector)


def said(side: Any, request: Request) -> Any:
    return join(list(side.speak(request)))


def test_a_request_that_fails_leaves_the_others_alone(side: Any) -> None:
    session, fine, broken = side.session(2), asked(side, 5), asked(side, 6)
    vector = np.full(side.facts.first.speaker_embedding_size, np.nan, np.float32)
    object.__setattr__(broken.voice, "vector", vector)
    keys, events = [session.join(broken), session.join(fine)], []
    while session.running:
        events += session.step()
    failed = [event for event in events if isinstance(event, Failed)]
    assert [event.key for event in failed] == keys[:1]
    assert "NaN or infinite" in str(failed[0].error)
    np.testing.assert_array_equal(events[-1].result.codes, said(side, fine).codes)


def test_a_long_decode_is_cancelled_inside_a_step(side: Any) -> None:
    session, cancel = side.session(1), threading.Event()
    key = session.join(asked(side, 5, decoder="mbd"), cancel=cancel)
    cancel.set()
    events = []
    while session.running:
        events += session.step()
    [event] = events
    assert event.key == key
    assert isinstance(event.error, CancelledError)


def test_places_follow_the_memory_plan(side: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    host = type(side.engine.host)
    plenty, request = side.session(8), asked(side, 5)
    assert plenty.places == 8
    needed = plenty.needed(request)
    plenty.join(request)
    assert plenty.promised == needed
    monkeypatch.setattr(host, "free_bytes", lambda self: needed + 10)
    assert plenty.fits(request, promised=10)
    assert not plenty.fits(request, promised=11)
    monkeypatch.setattr(host, "free_bytes", lambda self: needed - 1)
    with pytest.raises(ResourceError, match="a request's stages take"):
        plenty.fits(request)
    monkeypatch.setattr(host, "free_bytes", lambda self: 1000)
    with pytest.raises(ResourceError, match="a batch of one text"):
        side.session(3)

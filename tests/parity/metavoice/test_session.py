"""Requests in a running batch say what they say by themselves, whoever else is served; on both sides."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlx_port
import torch_ref
from tests.contract.arrivals import serve
from tests.tiny.metavoice_pipeline import LONG, TEXT, Ending, write_model
from tts_core.errors import CancelledError, ResourceError, UsageError
from tts_core.metavoice.options import MetaVoiceOptions
from tts_core.metavoice.request import STAGES, Request
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


@pytest.mark.parametrize("places", [1, 4])
def test_requests_come_and_go(side: Any, places: int) -> None:
    requests = [asked(side, seed) for seed in range(12)]
    spoken = serve(side.session(places), requests, seed=places, leaving=0.01)
    assert len(spoken) >= 6
    for place, result in spoken.items():
        alone = said(side, requests[place])
        np.testing.assert_array_equal(result.codes, alone.codes)
        np.testing.assert_allclose(result.audio, alone.audio, rtol=0, atol=1e-5)
        assert (result.seed, result.finish_reason, result.token_count) == (
            alone.seed,
            alone.finish_reason,
            alone.token_count,
        )
        assert [cue.text for cue in result.cues] == [cue.text for cue in alone.cues]
        assert list(result.stage_seconds) == list(STAGES)
        assert result.stage_seconds["first stage"] > 0


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


def test_a_cancelled_request_frees_its_rows_before_the_next_step(side: Any) -> None:
    session = side.session(1)
    key = session.join(asked(side, 5, max_frames=14))
    session.step()
    assert not session.fits(asked(side, 6))
    session.leave(key)
    session.leave(key)
    assert session.fits(asked(side, 6))
    request = asked(side, 6)
    [result] = serve(session, [request], seed=0).values()
    np.testing.assert_array_equal(result.codes, said(side, request).codes)


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


def test_texts_are_given_whole(side: Any) -> None:
    session = side.session(1)
    with pytest.raises(UsageError, match="reads its text at once"):
        session.join(asked(side, 5), more=True)
    assert session.waiting


def test_the_rehearsal_ends(side: Any) -> None:
    session = side.session(2)
    [result] = serve(session, [session.rehearsal()], seed=0).values()
    assert result.codes.shape[1] <= 16
    session.close()

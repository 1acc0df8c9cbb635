"""Dia2's running batch: the speech of a request does not depend on its neighbors, whoever comes and goes."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.tiny.dia2 import recording
from tts_core.audio.voice_cache import VoiceCache
from tts_core.dia2.options import Dia2Options
from tts_core.errors import UsageError
from tts_core.memory.fits import together

pytestmark = pytest.mark.rest

TEXT = "[S1] Hello there friend. [S2] Oh, hello! (laughs) I can't wait."
ASKED: list[tuple[str, dict[str, Any], Any]] = [
    (TEXT, {}, None),
    ("[S2] A second one. [pause:0.8] It waits.", {}, None),
    ("[S2] A third one.", {}, None),
    ("[S1] Without guidance.", {"cfg_scale": 1.0, "temperature": 1.1}, None),
    ("[S1] And then?", {"include_prefix": True}, recording()),
    ("[S1] Greedy.", {"temperature": 0, "action_temperature": 0, "cfg_filter_k": 3}, None),
    (TEXT, {"max_frames": 9, "speed": 1.5}, recording()),
    ("Ends soon.", {"initial_padding": 0, "top_k": 3}, None),
]


@pytest.fixture(scope="module")
def pipeline(both: Any) -> Any:
    return cache(lambda side: both("v_main")[side == "mlx"])


@pytest.fixture(scope="module")
def asked(pipeline: Any) -> Any:
    def requests(side: str) -> list[Any]:
        return [
            pipeline(side).request(text, Dia2Options(seed=place, **options), prompt)
            for place, (text, options, prompt) in enumerate(ASKED)
        ]

    return cache(requests)


def test_text_that_cannot_be_fed_is_refused(pipeline):
    session = pipeline("mlx").session(1)
    key = session.join(pipeline("mlx").request("[S1] Hello there", Dia2Options(seed=0)), more=True)
    with pytest.raises(UsageError, match=r"\[S3\] is not a speaker"):
        session.feed(key, " you. [S3] Who? ")
    session.leave(key)
    assert (session.running, session.waiting, session.promised) == (0, True, 0)
    exact = pipeline("mlx").request("[S1] Hello", Dia2Options(as_written=True))
    with pytest.raises(UsageError, match="as_written"):
        session.join(exact, more=True)
    with pytest.raises(UsageError, match="as_written"):
        pipeline("mlx").stream(iter(["Hello"]), as_written=True)
    assert session.running == 0


def test_a_voice_is_encoded_once(pipeline, asked, monkeypatch):
    """Two recordings of a configured voice, of two requests."""
    engine, encoded = pipeline("mlx").engine, []
    encode = engine._codes_of
    monkeypatch.setattr(engine, "_codes_of", lambda samples: encoded.append(1) or encode(samples))
    monkeypatch.setattr(engine, "_codes", VoiceCache())
    session = pipeline("mlx").session(2)
    for _ in range(2):
        session.join(asked("mlx")[4])
    session.step()
    assert len(encoded) == 2


def test_requests_wait_for_memory(pipeline, asked, monkeypatch):
    """By the plan: the cache of all rows together, as long as the longest may become."""
    session, host = pipeline("mlx").session(8), pipeline("mlx").engine.host
    jobs = [one.job() for one in asked("mlx")[:2]]
    needed = session.admission.plan.footprint(session.net.configs, together(jobs), host.machine()).running
    monkeypatch.setattr(type(host), "free_bytes", lambda _: needed)
    assert session.fits(asked("mlx")[0])
    session.join(asked("mlx")[0])
    assert session.fits(asked("mlx")[1])
    assert not session.fits(asked("mlx")[1], promised=1)
    session.join(asked("mlx")[1])
    assert not session.fits(asked("mlx")[3])
    assert session.promised == needed
    session.close()
    assert session.running == 0

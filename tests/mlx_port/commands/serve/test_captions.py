"""POST /v1/audio/captions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.mlx_port.commands.serve.served import Served, error_of
from tts_core.text.captions import Captions, Cue, Word

CUES = [
    {"text": "[S1] One & two. [S2] <Three>", "start": 0, "end": 1.5},
    {"text": "Four.", "start": 2, "end": 3, "words": [{"text": "Four.", "start": 2.5, "end": 3}]},
]
MADE = Captions((Cue("[S1] One & two. [S2] <Three>", 0, 1.5), Cue("Four.", 2, 3, (Word("Four.", 2.5, 3),))))
PATH = "/v1/audio/captions"


def test_both_formats(server: Served) -> None:
    srt = server.post(PATH, format="srt", cues=CUES)
    assert (srt.text, srt.headers["content-type"]) == (MADE.srt(), "application/x-subrip; charset=utf-8")
    vtt = server.post(PATH, format="vtt", cues=CUES)
    assert (vtt.text, vtt.headers["content-type"]) == (MADE.vtt(), "text/vtt; charset=utf-8")
    assert "<00:00:02.500>Four." in vtt.text


ONE = {"text": "a", "start": 0, "end": 1}


def test_cues_may_begin_together(shared: Served) -> None:
    assert shared.post(PATH, format="srt", cues=[ONE, ONE]).status_code == 200


def test_times_below_a_hundred_hours(server: Served) -> None:
    """Two digits of hours are all that the formats have."""
    last = {"text": "a", "start": 359_999.5, "end": 359_999.9}
    assert "99:59:59,500 --> 99:59:59,900" in server.post(PATH, format="srt", cues=[last]).text
    for field in ("start", "end"):
        late = {"text": "a", "start": 359_999, "end": 360_000} | (
            {"start": 360_000} if field == "start" else {}
        )
        response = server.post(PATH, format="srt", cues=[late])
        assert (response.status_code, error_of(response)["param"]) == (
            400,
            f"cues[0].{field}",
        )


BAD: list[tuple[dict[str, Any], str]] = [
    ({"format": "ass", "cues": [ONE]}, "format"),
    ({"format": ["srt"], "cues": [ONE]}, "format"),
    ({"format": "srt"}, "cues"),
    ({"format": "srt", "cues": []}, "cues"),
    ({"format": "srt", "cues": [1]}, "cues[0]"),
    ({"format": "srt", "cues": [{"text": "a", "start": 0}]}, "cues[0].end"),
    ({"format": "srt", "cues": [{**ONE, "style": "x"}]}, "cues[0].style"),
    ({"format": "srt", "cues": [{**ONE, "text": 5}]}, "cues[0].text"),
    ({"format": "srt", "cues": [{**ONE, "text": "x" * 5000}]}, "cues[0].text"),
    ({"format": "vtt", "cues": [{**ONE, "text": "a\x00b"}]}, "cues[0].text"),
    ({"format": "vtt", "cues": [{**ONE, "words": [{**ONE, "text": "\udfff"}]}]}, "cues[0].words[0].text"),
    ({"format": "srt", "cues": [{**ONE, "start": 2}]}, "cues[0]"),
    ({"format": "srt", "cues": [{**ONE, "start": -1}]}, "cues[0].start"),
    ({"format": "srt", "cues": [{**ONE, "end": True}]}, "cues[0].end"),
    ({"format": "srt", "cues": [{**ONE, "words": "a"}]}, "cues[0].words"),
    ({"format": "srt", "cues": [{**ONE, "words": [{"text": "a"}]}]}, "cues[0].words[0].start"),
    ({"format": "srt", "cues": [{**ONE, "start": 0.5}, ONE]}, "cues"),
    ({"format": "srt", "cues": [ONE], "cue": 1}, "cue"),
]


@pytest.mark.parametrize(("body", "field"), BAD, ids=[str(body)[:60] for body, _ in BAD])
def test_bad_bodies_are_named(shared: Served, body: dict[str, Any], field: str) -> None:
    response = shared.post(PATH, **body)
    assert response.status_code == 400
    assert error_of(response)["param"] == field

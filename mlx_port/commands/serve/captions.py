"""POST /v1/audio/captions: SubRip or WebVTT from times, such as those of pieces that a client joined."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from mlx_port.commands.serve.body import read_json
from mlx_port.commands.serve.errors import check_fields, invalid
from mlx_port.commands.serve.routes import service_of
from mlx_port.commands.serve.settings import Limits
from tts_core.errors import UsageError
from tts_core.text.captions import Captions, Cue, Word
from tts_core.text.checks import check_characters

FIELDS = ("format", "cues")
KINDS = {"srt": "application/x-subrip", "vtt": "text/vtt"}
MOST = 10_000  # cues
MOST_TIME = 360_000  # seconds: two digits of hours


async def captions(request: Request) -> Response:
    """Write {"format": "srt" or "vtt", "cues": [{"text", "start", "end"}]}, with "words" as events have."""
    limits = service_of(request).settings.limits
    body = await read_json(request, limits)
    check_fields(body, FIELDS)
    kind = body.get("format")
    if not isinstance(kind, str) or kind not in KINDS:
        raise invalid("format", f"format: {kind!r:.40} is not one of {', '.join(KINDS)}")
    made = Captions(_cues(body.get("cues"), limits))
    return Response(made.srt() if kind == "srt" else made.vtt(), media_type=f"{KINDS[kind]}; charset=utf-8")


def _cues(given: Any, limits: Limits) -> tuple[Cue, ...]:
    if not isinstance(given, list) or not 1 <= len(given) <= MOST:
        raise invalid("cues", f"cues: give a list of 1 to {MOST}")
    cues = tuple(_cue(place, one, limits) for place, one in enumerate(given))
    for place, (one, after) in enumerate(pairwise(cues), start=1):
        if after.start < one.start:
            raise invalid(f"cues[{place}]", f"cues[{place}]: begins before the one before it")
    return cues


def _cue(place: int, given: Any, limits: Limits) -> Cue:
    where = f"cues[{place}]"
    word = _timed(where, given, ("text", "start", "end", "words"), limits)
    assert word.end is not None
    words = given.get("words", [])
    if not isinstance(words, list) or len(words) > MOST:
        raise invalid(where, f"{where}: its words are not a list")
    timed = [_timed(f"{where}.words", one, ("text", "start", "end"), limits) for one in words]
    return Cue(word.text, word.start, word.end, tuple(timed))


def _timed(where: str, given: Any, known: tuple[str, ...], limits: Limits) -> Word:
    if not isinstance(given, Mapping) or not {"text", "start", "end"} <= given.keys() <= {*known}:
        raise invalid(where, f"{where}: not an object with {', '.join(known)}")
    text, start, end = given["text"], given["start"], given["end"]
    if not isinstance(text, str) or len(text) > limits.text:
        raise invalid(where, f"{where}: its text is not a string of at most {limits.text} characters")
    try:
        check_characters(where, text)
    except UsageError as error:
        raise invalid(where, str(error)) from None
    if not (_is_time(start) and _is_time(end) and start <= end):
        raise invalid(where, f"{where}: its times are not seconds, 0 <= start <= end <= 359999")
    return Word(text, start, end)


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < MOST_TIME

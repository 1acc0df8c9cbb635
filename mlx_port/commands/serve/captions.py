"""POST /v1/audio/captions: SubRip or WebVTT from times, such as those of pieces that a client joined."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from mlx_port.commands.serve.body import read, read_json
from mlx_port.commands.serve.fields import CAPTIONS
from mlx_port.commands.serve.routes import service_of
from tts_core.text.captions import Captions, Cue, Word


async def captions(request: Request) -> Response:
    """Write {"format": "srt" or "vtt", "cues": [{"text", "start", "end"}]}, with "words" as events have."""
    service = service_of(request)
    body = read(service.bodies.captions, await read_json(request, service.settings.limits))
    made = Captions(
        tuple(
            Cue(cue.text, cue.start, cue.end, tuple(Word(**dict(word)) for word in cue.words))
            for cue in body.cues
        )
    )
    text = made.srt() if body.format == "srt" else made.vtt()
    return Response(text, media_type=f"{CAPTIONS[body.format]}; charset=utf-8")

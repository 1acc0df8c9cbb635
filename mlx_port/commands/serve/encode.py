"""POST /v1/audio/encode: sound of a client, such as pieces that it joined, in any format of a speech."""

from __future__ import annotations

import io
import re

import numpy as np
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from mlx_port.commands.serve.body import read, read_bytes
from mlx_port.commands.serve.errors import invalid
from mlx_port.commands.serve.fields import EncodeQuery
from mlx_port.commands.serve.flow import PCM_RATE
from mlx_port.commands.serve.routes import service_of
from tts_core.audio.formats.names import FORMATS, Format
from tts_core.audio.formats.writer import SoundWriter

RATES = (1000, 48000)  # Hz
_PCM = re.compile(r"audio/pcm; ?rate=(\d{1,6}); ?channels=1")


async def encode(request: Request) -> Response:
    """Encode a body of 16-bit little-endian samples, audio/pcm;rate=RATE;channels=1, as a complete file."""
    limits = service_of(request).settings.limits
    form = FORMATS[read(EncodeQuery, dict(request.query_params)).response_format]
    declared = _PCM.fullmatch(request.headers.get("content-type", ""))
    rate = int(declared[1]) if declared else 0
    if not RATES[0] <= rate <= RATES[1]:
        low, high = RATES
        message = f"content-type: send samples as audio/pcm;rate=RATE;channels=1, a rate of {low} to {high}"
        raise invalid(None, message)
    body = await read_bytes(request, int(2 * rate * limits.audio_seconds), limits.body_seconds)
    if not body or len(body) % 2:
        raise invalid(None, "body: not one sample or more of two bytes")
    data, made_rate = await to_thread.run_sync(_encoded, body, rate, form)
    headers = {"x-sample-rate": str(made_rate), "cache-control": "no-store"}
    return Response(data, media_type=form.media_type.format(rate=made_rate), headers=headers)


def _encoded(body: bytes, rate: int, form: Format) -> tuple[bytes, int]:
    """Encode samples; returns the file and its rate in Hz."""
    output, wanted = io.BytesIO(), PCM_RATE if form.name == "pcm" else None
    with SoundWriter(output, form, rate, rate=wanted, seekable=True) as writer:
        writer.write(np.frombuffer(body, "<i2").astype(np.float32) / 32767)
    return output.getvalue(), writer.rate

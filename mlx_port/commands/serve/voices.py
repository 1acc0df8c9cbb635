"""The routes of voices: list, upload with transcript and consent, delete."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from anyio import to_thread
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mlx_port.commands.serve.body import read, read_bytes
from mlx_port.commands.serve.errors import ApiError, invalid
from mlx_port.commands.serve.fields import VoiceForm
from mlx_port.commands.serve.names import VOICES
from mlx_port.commands.serve.recordings import decoded
from mlx_port.commands.serve.routes import service_of
from mlx_port.commands.serve.settings import Limits
from tts_core.errors import CheckpointError, NotFoundError
from tts_core.printable import counted
from tts_core.serving.voices import TakenError, Voice, VoiceStore, check_consent

REPEATED = ("audio_sample", "transcript")  # fields of the form
_PIECE = 1 << 16  # bytes that are parsed at a time


async def list_voices(request: Request) -> Response:
    """GET /v1/audio/voices: configured voices, those built into served models, then OpenAI's names."""
    service = service_of(request)
    inner = [name for source in service.engine.models.values() for name in source.spec.voices]
    voices = await to_thread.run_sync(_listed, service.voices, inner)
    return JSONResponse({"object": "list", "data": voices, "voices": voices})


async def add_voice(request: Request) -> Response:
    """POST /v1/audio/voices: a form with name, audio_sample, transcript, consent and consent_note.

    audio_sample and transcript may repeat, one for each speaker. consent is a word of AGREED; the note, such
    as who agreed and when, is kept with the voice, or the word where there is none.
    """
    service = service_of(request)
    limits = service.settings.limits
    form = await _form(request, limits)
    try:
        async with request.app.state.uploads:  # the memory of one form
            voice = await to_thread.run_sync(_add, service.voices, form, limits)
    finally:
        await form.close()
    return JSONResponse(_described(voice))


async def delete_voice(request: Request) -> Response:
    """DELETE /v1/audio/voices/{id}."""
    name = request.path_params["id"]
    try:
        await to_thread.run_sync(service_of(request).voices.remove, name)
    except NotFoundError as error:
        raise ApiError(404, str(error), param="voice", code="voice_not_found") from None
    return JSONResponse({"id": name, "object": "audio.voice.deleted", "deleted": True})


def _listed(store: VoiceStore, inner: Sequence[str]) -> list[dict[str, Any]]:
    """List voices. inner: names of built-in ones."""
    own = []
    for name in store.names():
        with suppress(NotFoundError, CheckpointError):  # removed meanwhile, or damaged: not offered
            own.append(_described(store.voice(name)))
    taken = {item["id"] for item in own}
    others = [name for name in dict.fromkeys([*inner, *VOICES]) if name not in taken]
    return own + [{"id": name, "name": name, "object": "audio.voice"} for name in others]


def _described(voice: Voice) -> dict[str, Any]:
    return {
        "id": voice.name,
        "name": voice.name,
        "object": "audio.voice",
        "created_at": voice.created,
        "recordings": [
            {"seconds": seconds, "has_transcript": transcript is not None}
            for seconds, transcript in zip(voice.seconds, voice.transcripts, strict=True)
        ],
    }


async def _form(request: Request, limits: Limits) -> FormData:
    """Read the form in full before it is parsed, so that its size and time are bounded."""
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise invalid(
            None, "content-type: send a form (multipart/form-data) with name, audio_sample, consent"
        )
    body = await read_bytes(request, limits.upload, limits.body_seconds)

    async def parts() -> AsyncGenerator[bytes, None]:
        for start in range(0, len(body), _PIECE):
            yield body[start : start + _PIECE]
            await asyncio.sleep(0)  # speech of others goes on

    try:
        return await MultiPartParser(
            request.headers, parts(), max_files=8, max_fields=16, max_part_size=1 << 16
        ).parse()
    except (MultiPartException, KeyError, ValueError) as fault:
        detail = fault.message if isinstance(fault, MultiPartException) else "not readable"
        raise invalid(None, f"body: {detail}", "invalid_form") from None


def _add(store: VoiceStore, form: FormData, limits: Limits) -> Voice:
    given = {name: form.getlist(name) for name in form}
    single = {name: values[0] for name, values in given.items() if name not in REPEATED and len(values) == 1}
    fields = read(VoiceForm, given | single)
    check_consent(fields.consent)
    files, transcripts = fields.audio_sample, fields.transcript
    if transcripts and len(transcripts) != len(files):
        raise invalid("transcript", f"transcript: {len(transcripts)} for {counted(len(files), 'recording')}")
    recordings, said = _decoded(files, limits), transcripts or [None] * len(files)
    note = fields.consent if fields.consent_note is None else fields.consent_note
    try:
        return store.add(fields.name, recordings, said, note)
    except TakenError as error:
        raise ApiError(409, str(error), param="name", code="voice_exists") from None


def _decoded(files: Sequence[UploadFile], limits: Limits) -> list[tuple[np.ndarray, int]]:
    """Decode uploads, whose own names are not used. Raises ApiError 400 for no sound, or too much."""
    recordings: list[tuple[np.ndarray, int]] = []
    for file in files:
        before = sum(len(samples) / rate for samples, rate in recordings)
        count = sum(len(samples) for samples, _ in recordings)
        recordings.append(decoded("audio_sample", file.file.read(), limits.upload_seconds, before, count))
    return recordings

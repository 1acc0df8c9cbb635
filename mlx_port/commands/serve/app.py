"""The application: routes, errors, guard. It loads nothing from elsewhere."""

from __future__ import annotations

import asyncio
import time

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute

from mlx_port.commands.serve import routes, voices
from mlx_port.commands.serve.batch import batch
from mlx_port.commands.serve.captions import captions
from mlx_port.commands.serve.encode import encode
from mlx_port.commands.serve.errors import ApiError, api_error, log_cause
from mlx_port.commands.serve.guard import Guard
from mlx_port.commands.serve.live.websocket import LiveSpeech
from mlx_port.commands.serve.openapi import docs, openapi
from mlx_port.commands.serve.page import page
from mlx_port.commands.serve.service import Service
from mlx_port.commands.serve.streaming import NOBODY
from tts_core.errors import SpeechError, did_you_mean

_ROUTES = [
    Route("/", page, methods=["GET"]),
    Route("/page/{name}", page, methods=["GET"]),
    Route("/v1/audio/speech", routes.speech, methods=["POST"]),
    Route("/v1/audio/speech/batch", batch, methods=["POST"]),
    WebSocketRoute("/v1/audio/speech/stream", LiveSpeech()),
    Route("/v1/audio/encode", encode, methods=["POST"]),
    Route("/v1/audio/captions", captions, methods=["POST"]),
    Route("/v1/audio/voices", voices.list_voices, methods=["GET"]),
    Route("/v1/audio/voices", voices.add_voice, methods=["POST"]),
    Route("/v1/audio/voices/{id}", voices.delete_voice, methods=["DELETE"]),
    Route("/v1/audio/models", routes.describe_models, methods=["GET"]),
    Route("/v1/models", routes.list_models, methods=["GET"]),
    Route("/v1/models/{id:path}", routes.one_model, methods=["GET"]),  # a hub id has a slash
    Route("/openapi.json", openapi, methods=["GET"]),
    Route("/docs", docs, methods=["GET"]),
    Route("/health", routes.health, methods=["GET"]),
    Route("/ready", routes.health, methods=["GET"]),
    Route("/metrics", routes.metrics, methods=["GET"]),
]


def build(service: Service) -> Guard:
    """Build the application of a service whose engine is started."""
    app = Starlette(
        routes=_ROUTES,
        exception_handlers={
            ApiError: _refuse,
            SpeechError: _refuse,
            HTTPException: _no_route,
            ClientDisconnect: _left,
            Exception: _refuse,
        },
    )
    app.router.redirect_slashes = False
    app.state.service, app.state.started = service, int(time.time())
    app.state.uploads = asyncio.Lock()
    return Guard(app, service.settings.access, service.metrics)


async def _refuse(request: Request, error: Exception) -> Response:
    found = api_error(error)
    if isinstance(error, ApiError | SpeechError):  # uvicorn logs any other
        log_cause(f"{request.method} {request.url.path[:200]}", error)
    routes.service_of(request).metrics.errors.labels(found.code).inc()
    return found.response()


async def _left(request: Request, error: Exception) -> Response:
    """Answer a client that left before its body was complete."""
    return NOBODY


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        paths = sorted({route.path for route in _ROUTES})
        hint = did_you_mean(request.url.path[:200], paths) or f"there is {', '.join(paths)}"
        found = ApiError(
            404, f"{request.method} {request.url.path[:200]}: no such route; {hint}", code="no_route"
        )
    else:
        allowed = sorted((error.headers or {}).get("Allow", "").split(", "))
        message = f"{request.method}: not for this route; it takes {', '.join(allowed)}"
        found = ApiError(error.status_code, message, code="method", headers=error.headers)
    routes.service_of(request).metrics.errors.labels(found.code).inc()
    return found.response()

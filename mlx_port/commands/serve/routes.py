"""The routes of one speech, models, health and metrics."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mlx_port.commands.serve.body import read_json, read_speech
from mlx_port.commands.serve.describe import describe
from mlx_port.commands.serve.errors import ApiError
from mlx_port.commands.serve.flow import Flow
from mlx_port.commands.serve.names import choose_model
from mlx_port.commands.serve.service import Service
from mlx_port.commands.serve.streaming import SpeechResponse, answered
from tts_core.audio.formats.names import FORMATS

OWNER = "mlx-port"


def service_of(request: Request) -> Service:
    """Return what the routes share."""
    return request.app.state.service


async def speech(request: Request) -> Any:
    """POST /v1/audio/speech: speak a text. The answer begins with the first sound."""
    service = service_of(request)
    limits = service.settings.limits
    flow = Flow(service, read_speech(await read_json(request, limits), limits))
    answer = SpeechResponse(flow)
    return await answered(request, answer.begin(), [flow], answer)


async def list_models(request: Request) -> Response:
    """GET /v1/models."""
    models = [_model(request, name) for name in service_of(request).names]
    return JSONResponse({"object": "list", "data": models, "models": models})


async def describe_models(request: Request) -> Response:
    """GET /v1/audio/models, which Open WebUI asks: the models with their options, formats, limits."""
    service = service_of(request)
    models, limits = [], service.settings.limits
    for name in service.names:
        source = service.engine.models[name]
        facts = describe(source.model, source.configs, source.documents, longest=limits.audio_seconds)
        models.append({**_model(request, name), **facts})
    return JSONResponse(
        {
            "object": "list",
            "data": models,
            "models": models,
            "formats": [name for name, form in FORMATS.items() if form.is_installed],
            "limits": {
                "input": limits.text,
                "seconds": limits.audio_seconds,
                "upload_bytes": limits.upload,
                "upload_seconds": limits.upload_seconds,
            },
        }
    )


async def one_model(request: Request) -> Response:
    """GET /v1/models/{id}, which may be a hub id."""
    if not request.path_params["id"]:
        raise HTTPException(404)  # {id:path} matches an empty id
    return JSONResponse(_model(request, request.path_params["id"]))


def _model(request: Request, name: str) -> dict[str, Any]:
    service = service_of(request)
    served = choose_model(name, service.names)
    return {
        "id": name,
        "object": "model",
        "created": request.app.state.started,
        "owned_by": OWNER,
        "model": service.engine.models[served].model,
        "loaded": served in service.engine.statistics().loaded,
    }


async def health(request: Request) -> Response:
    """GET /health and /ready: 200 once the models are loaded and warm, 503 before that and while closing."""
    engine = service_of(request).engine
    if engine.ready:
        return JSONResponse({"status": "ok", "models": service_of(request).names})
    error = ApiError(503, "the server is not ready: it loads its models, or it is closing", code="not_ready")
    return JSONResponse({"status": "not ready", **error.body()}, 503, headers={"retry-after": "2"})


async def metrics(request: Request) -> Response:
    """GET /metrics, for Prometheus."""
    return Response(service_of(request).metrics.text(), media_type="text/plain; version=0.0.4")

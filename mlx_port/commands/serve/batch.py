"""POST /v1/audio/speech/batch: several speeches in one answer, in order.

A batch is taken as a whole or refused as a whole: one bad item is a 400 that names it. Only an item whose
speech fails has an error of its own.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from typing import Any

from anyio import to_thread
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from mlx_port.commands.serve.body import read, read_json
from mlx_port.commands.serve.choose import warnings
from mlx_port.commands.serve.errors import ApiError, api_error, invalid, log_cause
from mlx_port.commands.serve.fields import SpeechBody
from mlx_port.commands.serve.flow import FRAME, Flow
from mlx_port.commands.serve.routes import service_of
from mlx_port.commands.serve.service import Service
from mlx_port.commands.serve.streaming import GoneError, answered, body_message, close, unless_gone, usage
from tts_core.printable import json_text


async def batch(request: Request) -> Any:
    """Speak every item; the answer begins when the first is complete."""
    service = service_of(request)
    body = read_items(await read_json(request, service.settings.limits), service)
    flows = [Flow(service, item) for item in body]
    return await answered(request, _submit(flows), flows, BatchResponse(flows))


def read_items(body: dict[str, Any], service: Service) -> list[SpeechBody]:
    """Check {"items": [bodies of speeches]}. Raises ApiError 400 naming the item and the field."""
    items = read(service.bodies.batch, body).items
    for index, given in enumerate(items):
        try:
            if given.sse:
                raise invalid("stream_format", "stream_format: a batch is not streamed; leave it out")
            service.check(given)
        except ApiError as error:
            raise _in_item(index, error) from None
    return items


def _in_item(index: int, error: ApiError) -> ApiError:
    param = None if error.param is None else f"items[{index}].{error.param}"
    message = f"items[{index}].{error.message}" if error.param is not None else error.message
    return ApiError(error.status, message, param=param, code=error.code, headers=error.headers)


async def _submit(flows: Sequence[Flow]) -> None:
    for index, flow in enumerate(flows):
        try:
            await flow.submit()
        except Exception as error:
            raise _in_item(index, api_error(error)) from error


class BatchResponse:
    """The answer of a batch, sent item by item."""

    def __init__(self, flows: Sequence[Flow]):
        self.flows, self._has_begun = flows, False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the items (ASGI)."""
        tasks = [asyncio.ensure_future(_item(index, flow)) for index, flow in enumerate(self.flows)]
        try:
            async with asyncio.timeout(self.flows[0].seconds_left):
                await unless_gone(receive, self._send(send, tasks))
        except GoneError:
            pass
        except TimeoutError:
            late = self.flows[0].late()
            self.flows[0].service.metrics.errors.labels(late.code).inc()
            log_cause("a batch broke off", late)
            if not self._has_begun:
                await late.response()(scope, receive, send)
        finally:
            close(self.flows)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, send: Send, tasks: Sequence[asyncio.Future[bytes]]) -> None:
        before = b'{"object": "audio.speech.batch", "items": ['
        for index, task in enumerate(tasks):
            item = await task
            if index == 0:
                self._has_begun = True
                headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
                headers += warnings(
                    [
                        f"items[{at}].{warning}"
                        for at, flow in enumerate(self.flows)
                        for warning in flow.warnings
                    ]
                )
                await send({"type": "http.response.start", "status": 200, "headers": headers})
            content = before + item
            for begin in range(0, len(content), FRAME):
                await send(body_message(content[begin : begin + FRAME], more=True))
            before = b", "
        await send(body_message(b"]}", more=False))


async def _item(index: int, flow: Flow) -> bytes:
    found = await _spoken(index, flow)
    return await to_thread.run_sync(lambda: json_text(found, indent=None).encode())


async def _spoken(index: int, flow: Flow) -> dict[str, Any]:
    try:
        await flow.start()
        audio = b"".join([data async for data, _ in flow.encoded()])
    except Exception as error:
        found = api_error(error)
        flow.service.metrics.errors.labels(found.code).inc()
        if found.code != "timeout":  # that of the batch is over, too
            log_cause("a speech of a batch broke off", error)
        flow.close()
        return {"index": index, **found.body()}
    assert flow.encoder is not None
    return {
        "index": index,
        "audio": base64.b64encode(audio).decode(),
        "response_format": flow.body.form.name,
        "content_type": flow.encoder.media_type,
        "sample_rate": flow.encoder.rate,
        "seed": flow.seed,
        "usage": usage(flow),
    }

"""Who may use the server, checked before any route: host, origin, key. Every answer gets its request id.

A web page that a user visits can send requests to a server on the user's machine, under the page's own name
if its DNS is made to point here (rebinding). Its browser then sends the page's Origin, or that name as Host.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import platform
import secrets
import time
from hashlib import sha256

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mlx_port.commands.serve.errors import ApiError, api_error
from mlx_port.commands.serve.examples import HEALTH, OPEN
from mlx_port.commands.serve.metrics import Metrics
from mlx_port.commands.serve.page import contents
from mlx_port.commands.serve.rest import Rest
from mlx_port.commands.serve.settings import Access
from tts_core.errors import CancelledError
from tts_core.printable import one_line

_LOG = logging.getLogger("mlx_port.serve")
EXPOSED = "x-request-id, x-seed, x-sample-rate, x-expected-seconds, retry-after, warning"
SENT = "authorization, content-type"  # headers, unless a page asks for others
METHODS = "GET, POST, DELETE"
ANSWERS = ("http.response.start", "websocket.http.response.start", "websocket.accept")


class Guard:
    """Middleware (ASGI) that refuses before it passes on."""

    def __init__(self, app: ASGIApp, access: Access, metrics: Metrics):
        self.app, self.access, self.metrics = app, access, metrics
        own = platform.node().lower()
        self._hosts = {"localhost", own, f"{own}.local", access.host.lower(), *map(str.lower, access.hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request (ASGI)."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        number, started = f"req_{secrets.token_hex(12)}", time.perf_counter()
        headers, origin, status = Headers(scope=scope), None, 0
        is_socket, rest = scope["type"] == "websocket", Rest(scope, receive)

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] in ANSWERS:
                status = message.get("status", 101)
                message["headers"] = [*message.get("headers", []), *self._added(number, origin)]
                if rest.is_left:
                    message["headers"].append((b"connection", b"close"))
            elif rest.is_left and message["type"] == "http.response.body" and not message.get("more_body"):
                await send({**message, "more_body": True})
                await rest.drop()
                message = {"type": "http.response.body"}
            await send(message)

        try:
            _check_framing(headers, scope)
            origin = _single(headers, "origin")
            host = _single(headers, "host")
            if host is not None or origin is not None or scope["path"] not in HEALTH:
                self._check_origin(host, origin)
            if origin is not None and not is_socket and scope["method"] == "OPTIONS":
                await self._preflight(_single(headers, "access-control-request-headers"))(
                    scope, receive, answer
                )
                return
            if scope["path"] not in OPEN and scope["path"] not in contents():
                authorization = _single(headers, "authorization")
                scope["has_key"] = not is_socket or authorization is not None  # its first message may have it
                if scope["has_key"]:
                    self._check_key(authorization)
        except ApiError as error:
            self.metrics.errors.labels(error.code).inc()
            await error.response()(scope, receive, answer)
        else:
            await self._pass_on(scope, rest.receive, answer)
        finally:
            self._note(scope, number, status, time.perf_counter() - started)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 503 where the server ends before the answer has begun. Cut the connection of an answer that
        was given up: uvicorn would log it as a fault of the server.
        """
        has_begun = is_over = False

        async def answer(message: Message) -> None:
            nonlocal has_begun, is_over
            has_begun = True
            await send(message)
            is_over = message["type"] == "http.response.body" and not message.get("more_body")

        try:
            await self.app(scope, receive, answer)
        except asyncio.CancelledError:
            if scope["type"] == "http" and not has_begun:
                error = api_error(CancelledError())
                self.metrics.errors.labels(error.code).inc()
                await error.response()(scope, receive, send)
        if scope["type"] == "http" and has_begun and not is_over:
            scope["state"]["cut"]()
            while (await receive())["type"] != "http.disconnect":
                pass

    def _check_origin(self, host: str | None, origin: str | None) -> None:
        """Raise ApiError 403 for the page of another site, and for a name that may be any site's."""
        if host is None:
            raise ApiError(400, "host: the header is missing", code="invalid_header")
        own = (None, f"http://{host}", f"https://{host}", *self.access.origins)
        if origin not in own:
            message = "origin: web pages of other sites may not use this server; --cors ORIGIN lets one"
            raise ApiError(403, message, code="origin_refused")
        if self.access.api_key is None and not self._is_ours(host):
            message = "host: not a name of this server; start it with --allow-host NAME, or with --api-key"
            raise ApiError(403, message, code="host_refused")

    def _is_ours(self, host: str) -> bool:
        name = _name(host)
        if name in self._hosts or name.endswith(".localhost"):
            return True
        try:
            ipaddress.ip_address(name)  # a page cannot make its name an address
        except ValueError:
            return False
        return True

    def _check_key(self, authorization: str | None) -> None:
        """Raise ApiError 401 for a missing or wrong key. Takes the same time for every key."""
        if self.access.api_key is None:
            return
        scheme, _, given = (authorization or "").partition(" ")
        assert self.access.api_key is not None
        if scheme.lower() != "bearer" or not is_key(given.strip(), self.access.api_key):
            challenge = {"www-authenticate": "Bearer"}
            message = "api key: missing or wrong; send it as Authorization: Bearer KEY"
            raise ApiError(401, message, code="invalid_api_key", headers=challenge)

    def _preflight(self, wanted: str | None) -> Response:
        """Answer an allowed page that asks first. wanted: the headers that it wants to send; it may."""
        headers = {
            "access-control-allow-methods": METHODS,
            "access-control-allow-headers": wanted or SENT,
            "access-control-max-age": "600",
        }
        return Response(status_code=204, headers=headers)

    def _added(self, number: str, origin: str | None) -> list[tuple[bytes, bytes]]:
        added = [(b"x-request-id", number.encode()), (b"x-content-type-options", b"nosniff")]
        if origin is not None and origin in self.access.origins:
            added.append((b"access-control-allow-origin", origin.encode()))
            added.append((b"access-control-expose-headers", EXPOSED.encode()))
            added.append((b"vary", b"Origin"))
        return added

    def _note(self, scope: Scope, number: str, status: int, seconds: float) -> None:
        endpoint = scope.get("endpoint")
        name = getattr(endpoint, "__name__", "none" if endpoint is None else type(endpoint).__name__)
        self.metrics.answers.labels(name, status).inc()
        path = one_line(f"{scope.get('method', 'WS')} {scope['path']}"[:200])
        _LOG.info("%s %d in %.2f s, %s", path, status, seconds, number)


def _single(headers: Headers, name: str) -> str | None:
    """Return a header's value. Raises ApiError 400 for one that is given twice."""
    values = headers.getlist(name)
    if len(values) > 1:
        raise ApiError(400, f"{name}: the header is given {len(values)} times", code="invalid_header")
    return values[0] if values else None


def _check_framing(headers: Headers, scope: Scope) -> None:
    """Raise ApiError 400 for two ends of a body, of which a proxy may take the other one."""
    if "transfer-encoding" in headers and ("content-length" in headers or scope["http_version"] == "1.0"):
        message = "transfer-encoding: with content-length, or of HTTP/1.0; send one of both"
        raise ApiError(400, message, code="invalid_header")


def _name(host: str) -> str:
    """The name in a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower().rstrip(".")


def is_key(given: str, key: str) -> bool:
    """Compare a key with the server's, in the same time for every one."""
    return hmac.compare_digest(_digest(given), _digest(key))


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogatepass")).digest()

"""The page at `/`: files of the package, with headers that keep everything from elsewhere out.

`mlx-port serve --open` starts the user's browser on it.
"""

from __future__ import annotations

import logging
import threading
import webbrowser
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

from mlx_port.commands.serve.errors import ApiError

_LOG = logging.getLogger("mlx_port.serve")
EVERY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # an address that listens on all → one to visit
INDEX = "index.html"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "media-src": "blob:",  # recordings, before they are sent
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    "require-trusted-types-for": "'script'",
    "trusted-types": "'none'",
}
HEADERS = {
    "content-security-policy": "; ".join(f"{name} {value}" for name, value in POLICY.items()),
    "cache-control": "no-cache",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "microphone=(self), camera=(), geolocation=()",
    "referrer-policy": "no-referrer",
}


@cache
def contents() -> dict[str, bytes]:
    """Read the files, by the path at which each is served."""
    folder = files("mlx_port.commands.serve") / "web"
    found = {path.name: path.read_bytes() for path in folder.iterdir() if _kind(path.name) is not None}
    return {"/": found.pop(INDEX), **{f"/page/{name}": data for name, data in sorted(found.items())}}


async def page(request: Request) -> Response:
    """GET / and /page/{name}. These files need no key; they contain no data of the server."""
    path = request.url.path
    if path not in contents():
        raise ApiError(404, f"{path[:200]}: no such file of the page", code="no_route")
    kind = KINDS[".html"] if path == "/" else _kind(path)
    return Response(contents()[path], headers={"content-type": str(kind), **HEADERS})


def page_url(host: str, port: int) -> str:
    """Address of the page of a server that listens on `host`."""
    name = EVERY.get(host, host)
    return f"http://[{name}]:{port}/" if ":" in name else f"http://{name}:{port}/"


def open_page(url: str) -> None:
    """Start the user's browser, in a thread: some run until they are closed. Without one, log the address."""

    def work() -> None:
        if not webbrowser.open(url):
            _LOG.warning("open: no browser was found; the page is at %s", url)

    threading.Thread(target=work, name="browser", daemon=True).start()


def _kind(name: str) -> str | None:
    """Media type of a file; None for one that is not served."""
    return next((kind for suffix, kind in KINDS.items() if name.endswith(suffix)), None)

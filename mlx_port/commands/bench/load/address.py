"""Address of a server's speech route."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from tts_core.errors import UsageError

ROUTE = "/audio/speech"


@dataclass(frozen=True)
class Address:
    """Where requests are sent. path: of the speech route.  tls: https."""

    host: str
    port: int
    path: str
    tls: bool

    @property
    def authority(self) -> str:
        """Host and port, as a header and a reader write them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The whole address of the route."""
        return f"http{'s' if self.tls else ''}://{self.authority}{self.path}"


def read_address(url: str) -> Address:
    """Read a server's URL: with or without /v1, or the route itself. Raises UsageError."""
    wrong = UsageError("server: give its address as http://HOST:PORT, without user, query or fragment")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise wrong
    try:
        parts = urlsplit(url)
        port = parts.port
        (parts.hostname or "").encode("idna")  # as a connection will
    except ValueError:
        raise wrong from None
    extra = parts.username is not None or parts.query or parts.fragment
    if parts.scheme not in ("http", "https") or not parts.hostname or extra:
        raise wrong
    path, tls = parts.path.rstrip("/"), parts.scheme == "https"
    if not path.endswith(ROUTE):
        path = (path if path.endswith("/v1") else f"{path}/v1") + ROUTE
    return Address(parts.hostname, port or (443 if tls else 80), path, tls)

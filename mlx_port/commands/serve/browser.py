"""The browser that `mlx-port serve --open` starts on the page."""

from __future__ import annotations

import logging
import threading
import webbrowser

_LOG = logging.getLogger("mlx_port.serve")
EVERY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # an address that listens on all → one to visit


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

"""`mlx-port serve`: the flags. `run`, imported when the command runs, does the work."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from mlx_port.commands.loading_flags import loading, loading_flags
from mlx_port.commands.serve.settings import Access, Limits, Settings
from tts_core.command.seconds import Seconds
from tts_core.errors import NotFoundError, UsageError
from tts_core.extras import install

LIBRARIES = {
    "pydantic": "pydantic",
    "starlette": "starlette",
    "uvicorn": "uvicorn",
    "prometheus_client": "prometheus-client",
    "python_multipart": "python-multipart",
    "websockets": "websockets",
}
# of the origins of web pages, and of programs that show some
SCHEMES = ("http", "https", "app", "tauri", "capacitor", "chrome-extension")
DAY = 86400.0
LIMITS = {"max_text": "text", "max_audio": "audio_seconds", "timeout": "request_seconds"}  # flag → field


@click.command()
@click.option(
    "--model",
    "models",
    metavar="MODEL",
    multiple=True,
    help="Hub id or converted folder, served under its name; repeat for several.  "
    "[default: the embedded voice]",
)
@loading_flags("each folder's; with --backend torch by device")
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, help="0: any free one.")
@click.option(
    "--api-key",
    envvar="MLX_PORT_API_KEY",
    help="Key that every caller must send; better in the environment, as MLX_PORT_API_KEY.",
)
@click.option(
    "--voices",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Folder of voices by name.  [default: that of mlx-port voices]",
)
@click.option("--max-queue", type=click.IntRange(1, 10_000), default=64, help="Requests that may wait.")
@click.option("--places", type=click.IntRange(1, 256), default=8, help="Requests spoken at once, at most.")
@click.option(
    "--idle-unload", type=Seconds(30 * DAY), help="Unload a model after this many seconds without use."
)
@click.option(
    "--cors", metavar="ORIGIN", multiple=True, help="Web page that may call, as https://example.org; repeat."
)
@click.option(
    "--allow-host",
    metavar="NAME",
    multiple=True,
    help="Further name of this machine, as in a container; repeat.",
)
@click.option("--warm-up/--no-warm-up", default=True, help="Speak once, unheard, at the start.")
@click.option(
    "--strict",
    is_flag=True,
    help="Refuse fields that are otherwise ignored with a warning: unknown, or of no use to the model.",
)
@click.option(
    "--skip-unknown",
    is_flag=True,
    help="Leave letters out that a model has not learned, for clients that cannot ask for it.",
)
@click.option(
    "--max-text", type=click.IntRange(1, 1_000_000), default=Limits.text, help="Characters of a text."
)
@click.option("--max-audio", type=Seconds(DAY), default=Limits.audio_seconds, help="Seconds of one speech.")
@click.option("--timeout", type=Seconds(DAY), default=Limits.request_seconds, help="Seconds of one request.")
@click.option(
    "--drain",
    "drain_seconds",
    type=Seconds(DAY),
    default=30.0,
    help="Seconds to finish requests after SIGTERM.",
)
@click.option(
    "--wyoming",
    metavar="[HOST:]PORT",
    help="Also serve Home Assistant, in the Wyoming protocol.  [default host: --host]",
)
@click.option(
    "--open", "open_page", is_flag=True, help="Open the page in the browser, once the server is ready."
)
@click.option("--quiet", is_flag=True, help="Log warnings only.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def serve(**given: Any) -> int:
    """Serve speech over HTTP with OpenAI's API.

    Ends at SIGTERM or Ctrl-C, once the requests under way are finished.
    """
    quiet = given.pop("quiet")
    settings = read_settings(given)
    check_installed()
    if settings.wyoming is not None and find_spec("wyoming") is None:
        raise NotFoundError(f"wyoming: it is not installed; {install('wyoming')}")
    return import_module("mlx_port.commands.serve.run").run(settings, quiet=quiet)


def read_settings(given: dict[str, Any]) -> Settings:
    """Turn the values of flags, without --quiet and --debug, into settings. Raises UsageError."""
    host, wyoming = given.pop("host"), given.pop("wyoming")
    key, origins, hosts = _key(given.pop("api_key")), _origins(given.pop("cors")), given.pop("allow_host")
    limits = Limits(**{field: given.pop(flag) for flag, field in LIMITS.items()})
    how = loading(given)
    return Settings(
        loading=how,
        access=Access(host, key, origins, hosts),
        limits=limits,
        wyoming=None if wyoming is None else _address(wyoming, host),
        **given,
    )


def check_installed() -> None:
    """Raise NotFoundError that names the extra for the first missing library."""
    for module, name in LIBRARIES.items():
        if find_spec(module) is None:
            raise NotFoundError(f"serve: {name} is not installed; {install('serve')}")


def _key(given: str | None) -> str | None:
    if given is not None and (not given.strip() or not given.isprintable() or not given.isascii()):
        raise UsageError(
            "api-key: empty, or with characters that a header cannot carry; give a long random word"
        )
    return given


def _address(given: str, host: str) -> tuple[str, int]:
    before, colon, port = given.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 1 << 16) or (colon and not before):
        raise UsageError(f"wyoming: {given!r} is no port; give it as 10200, or as 127.0.0.1:10200")
    return before.strip("[]") or host, int(port)


def _origins(given: tuple[str, ...]) -> tuple[str, ...]:
    for origin in given:
        scheme, mark, host = origin.partition("://")
        if scheme not in SCHEMES or not mark or not host or "/" in host or "*" in host:
            raise UsageError(f"cors: {origin!r} is no origin; give it as https://example.org, without a path")
    return given

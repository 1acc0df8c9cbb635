"""Start and end of the server: models opened, engine started, requests served, all drained."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

import click
import uvicorn

from mlx_port.commands.arithmetic import arithmetic, codec_precision
from mlx_port.commands.loading_flags import Loading
from mlx_port.commands.opening import check_backend, load_pipeline, on_this_machine, open_model
from mlx_port.commands.serve.app import build
from mlx_port.commands.serve.live.protocols import HttpConnection, WebSocketConnection
from mlx_port.commands.serve.metrics import Metrics
from mlx_port.commands.serve.page import open_page, page_url
from mlx_port.commands.serve.service import Service
from mlx_port.commands.serve.settings import Settings
from tts_core.errors import UsageError
from tts_core.printable import LineFormatter, one_line
from tts_core.serving.engine import SpeechEngine
from tts_core.serving.source import ModelSource
from tts_core.serving.statistics import Ended
from tts_core.serving.voices import VoiceStore, voices_folder

if TYPE_CHECKING:
    from mlx_port.commands.serve.wyoming.port import WyomingPort
    from tts_core.speaking.pipeline import Pipeline

EMBEDDED = "embedded"
INTERRUPTED = 130
LOOPBACK = ("127.0.0.1", "::1", "localhost")
LAST_WORDS = 2.0  # seconds for the answers of requests that were not finished in time
_LOG = logging.getLogger("mlx_port.serve")
_LOGS = ("mlx_port.serve", "tts_core", "uvicorn.error")


class Server(uvicorn.Server):
    """uvicorn's server.

    beside: the Wyoming port, if any, which starts and drains with it.
    on_listening: called once the ports are open.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        beside: WyomingPort | None = None,
        on_listening: Callable[[], None] | None = None,
    ):
        super().__init__(config)
        self.beside, self.on_listening = beside, on_listening

    async def startup(self, sockets: list[Any] | None = None) -> None:
        """Start to listen. Raises as WyomingPort.start."""
        if self.beside is not None:
            await self.beside.start()
        await super().startup(sockets)
        if self.on_listening is not None:
            self.on_listening()

    async def shutdown(self, sockets: list[Any] | None = None) -> None:
        ending = [super().shutdown(sockets)]
        if self.beside is not None:
            ending.append(self.beside.stop(self.config.timeout_graceful_shutdown or 0))
        await asyncio.gather(*ending)
        if self.server_state.tasks:  # cancelled; each says so to its client
            await asyncio.wait([*self.server_state.tasks], timeout=LAST_WORDS)


def run(settings: Settings, *, quiet: bool) -> int:
    """Serve until SIGTERM, which gives 0, or Ctrl-C. Raises what opening or loading a model raises."""
    check_backend(settings.loading.backend)
    with _logging(logging.WARNING if quiet else logging.INFO):
        return _run(settings)


def _run(settings: Settings) -> int:
    metrics = Metrics()

    def ended(speech: Ended) -> None:
        metrics.ended(speech)
        _LOG.info("%s", one_line(_told(speech)))

    models, backend = sources(settings), settings.loading.backend
    engine = SpeechEngine(
        models,
        max_queue=settings.max_queue,
        places=settings.places,
        idle_unload=settings.idle_unload,
        warm_up=settings.warm_up,
        on_end=ended,
        freeze=True,
    )
    metrics.watch(engine.statistics)
    metrics.computes(
        partial(arithmetic, backend),
        lambda: {name: codec_precision(backend, model.codec_precision) for name, model in models.items()},
    )
    service = Service(engine, _store(settings), settings, metrics)
    _announce(service)
    try:
        code = _serve(service)
    finally:
        engine.close()
    if engine.error is not None:
        raise engine.error
    return code


def sources(settings: Settings) -> Mapping[str, ModelSource]:
    """Open the models, by the names of their folders. No weights are read."""
    found: dict[str, ModelSource] = {}
    for path in settings.models or (None,):
        name = EMBEDDED if path is None else _name(path)
        if name in found:
            raise UsageError(f"model: two folders are called {name}; rename one")
        how = settings.loading if path is not None else replace(settings.loading, dtype=None)
        path, how = on_this_machine(path, how)
        parts = open_model(path, how)

        def load(path: str | None = path, how: Loading = how) -> Pipeline:
            return load_pipeline(open_model(path, how), how.backend)

        found[name] = ModelSource(
            str(parts.model), parts.configs, parts.documents, load, codec_precision=parts.codec_precision
        )
    return found


def _name(path: str) -> str:
    """Name a model as clients ask for it: a folder by its own name, a hub id by itself."""
    folder = Path(path).expanduser()
    return folder.resolve().name if folder.exists() else path


def _serve(service: Service) -> int:
    settings, engine = service.settings, service.engine
    server: Server
    told = False

    async def look() -> None:
        """Say once that the models are loaded; end the server if the engine has ended."""
        nonlocal told
        if engine.ready and not told:
            told = True
            url = page_url(settings.access.host, server.servers[0].sockets[0].getsockname()[1])
            _LOG.info("page and API: listening on %s", one_line(url))
            if server.beside is not None:
                _LOG.info("wyoming: listening on %s", one_line("tcp://{}:{}".format(*server.beside.address)))
            _LOG.info("ready: %s", one_line(", ".join(service.names)))
            if settings.open_page:
                open_page(url)
        if engine.error is not None:
            server.should_exit = True

    server = Server(http(service, look), wyoming(service), engine.start)  # a port that is taken loads nothing
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        """Take the signal that uvicorn raises again once it has closed."""
        received.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        server.run()
    except SystemExit:
        address = f"{settings.access.host}:{settings.port}"
        raise UsageError(
            f"port: {address} cannot be opened; another program may use it: give another --port or --host"
        ) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return INTERRUPTED if signal.SIGINT in received else 0


def wyoming(service: Service) -> WyomingPort | None:
    """Prepare the Wyoming port of a service, if its settings have one."""
    if service.settings.wyoming is None:
        return None
    from mlx_port.commands.serve.wyoming.port import WyomingPort

    settings = replace(service.settings, skip_unknown=True)  # no field of the protocol can ask for it
    return WyomingPort(replace(service, settings=settings), service.settings.wyoming)


def http(service: Service, look: Callable[[], Awaitable[None]]) -> uvicorn.Config:
    """Configure the HTTP server of a service. look: called every second."""
    settings = service.settings
    connection = partial(
        HttpConnection,
        read_seconds=settings.limits.read_seconds,
        on_stall=service.metrics.errors.labels("stalled").inc,
    )
    return uvicorn.Config(
        build(service),
        host=settings.access.host,
        port=settings.port,
        http=cast(Any, connection),
        ws=WebSocketConnection,
        ws_max_size=4 * settings.limits.message,  # a message between both limits gets an error
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=max(1, round(settings.drain_seconds)),
        callback_notify=look,
        timeout_notify=1,
    )


def _told(speech: Ended) -> str:
    """Describe a speech that ended, without its text."""
    first = "no sound" if speech.first_audio is None else f"first audio after {speech.first_audio:.2f} s"
    factor = "" if speech.real_time_factor is None else f", RTF {speech.real_time_factor:.2f}"
    return f"{speech.model}: {speech.outcome}, {speech.audio_seconds:.1f} s of speech, {first}{factor}"


def _store(settings: Settings) -> VoiceStore:
    """Open the folder of voices. Raises UsageError for what is no folder; one may be missing."""
    store = VoiceStore(settings.voices or voices_folder())
    if not store.folder.is_dir():
        if os.path.lexists(store.folder):
            raise UsageError(f"voices: {store.folder} is no folder; give one, also one that is not there yet")
        if settings.voices is not None:
            words = "voices: %s is not there; the first voice that is added creates it"
            _LOG.warning(words, one_line(str(store.folder)))
    return store


def _announce(service: Service) -> None:
    access = service.settings.access
    _LOG.info("voices: %s", one_line(str(service.voices.folder)))
    if access.api_key is None and access.host not in LOOPBACK:
        click.echo(
            f"warning: anybody who reaches {one_line(access.host)} can use this server; give --api-key",
            err=True,
        )
    wyoming = service.settings.wyoming
    if wyoming is not None and wyoming[0] not in LOOPBACK:
        click.echo(
            f"warning: anybody who reaches {one_line(wyoming[0])} can speak; Wyoming has no keys",
            err=True,
        )


@contextmanager
def _logging(level: int) -> Iterator[None]:
    """Log to stderr, a safe line each, inside the block."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S"))
    loggers = [logging.getLogger(name) for name in _LOGS]
    before = [(logger.level, logger.handlers, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.setLevel(level)
        logger.handlers, logger.propagate = [handler], False
    try:
        yield
    finally:
        for logger, (old, logger.handlers, logger.propagate) in zip(loggers, before, strict=True):
            logger.setLevel(old)

"""Settings of a server: what it serves, where, and its limits. Nothing heavy is imported."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from mlx_port.commands.loading_flags import Loading


@dataclass(frozen=True)
class Limits:
    """Bounds of single requests.

    text: characters of an input or of instructions.
    audio_seconds: of a speech.
    request_seconds: from a request's arrival to its last byte.
    body, upload: bytes.
    upload_seconds: of a recording.
    body_seconds: for a body to arrive.
    read_seconds: for a client to take some of its answer.
    batch: texts of a batch.

    Of speech whose text arrives late:
    sockets: open at once.
    message: bytes of one.
    message_rate: messages a second.
    start_seconds: to the first message.
    idle_seconds: to the next one, while the text goes on.
    stall_seconds: a listener may take for a frame of sound.
    ahead_seconds: of sound that nobody has heard, beyond which no more text is passed on.
    """

    text: int = 4096
    audio_seconds: float = 900.0
    request_seconds: float = 1800.0
    body: int = 2 << 20
    upload: int = 32 << 20
    upload_seconds: float = 120.0
    body_seconds: float = 60.0
    read_seconds: float = 60.0
    batch: int = 32
    sockets: int = 128
    message: int = 1 << 16
    message_rate: int = 1000
    start_seconds: float = 10.0
    idle_seconds: float = 60.0
    stall_seconds: float = 20.0
    ahead_seconds: float = 20.0


@dataclass(frozen=True)
class Access:
    """Who may use the server.

    host: that it listens on.
    api_key: asked of every caller if given.
    origins: of web pages that may call it.
    hosts: names of this machine, besides its own and addresses, by which callers may reach it.
    """

    host: str = "127.0.0.1"
    api_key: str | None = None
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Settings:
    """Settings of one server; flags of `mlx-port serve`.

    models: folders; none is the embedded voice.
    wyoming: host and port to listen on for Home Assistant, if any.
    strict: refuse fields that are otherwise ignored with a warning.
    skip_unknown: leave letters out that a model has not learned, where a request does not say.
    """

    models: tuple[str, ...] = ()
    loading: Loading = field(default_factory=Loading)
    port: int = 8000
    voices: Path | None = None
    max_queue: int = 64
    places: int = 8
    idle_unload: float | None = None
    warm_up: bool = True
    drain_seconds: float = 30.0
    wyoming: tuple[str, int] | None = None
    strict: bool = False
    skip_unknown: bool = False
    open_page: bool = False
    access: Access = field(default_factory=Access)
    limits: Limits = field(default_factory=Limits)

"""A server on a free port of loopback around models that only talk, in a thread of the tests."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import httpx
import numpy as np

from mlx_port.commands.serve.metrics import Metrics
from mlx_port.commands.serve.run import Server, http, wyoming
from mlx_port.commands.serve.service import Service
from mlx_port.commands.serve.settings import Settings
from tests.tts_core.serving import talkers
from tests.tts_core.serving.talkers import Said, Singers
from tts_core import models
from tts_core.audio.formats.names import FORMATS
from tts_core.audio.formats.writer import StreamEncoder
from tts_core.errors import UsageError
from tts_core.options import changed, options_class
from tts_core.serving.engine import SpeechEngine
from tts_core.serving.source import ModelSource
from tts_core.serving.speech import Speech
from tts_core.serving.voices import VoiceStore
from tts_core.speaking.live import LiveText, SameVoices
from tts_core.text.checks import check_words
from tts_core.text.rules import FILE as RULES
from tts_core.text.rules import TextRules

SOON = 600.0  # seconds; only a test that hangs waits so long


class Talk:
    """A model with the options of a real one, whose speech is a number of samples a word.

    asked: text, options and prompt of each request.  log: of its batch.  gate: released once a step.
    """

    fed = False
    configs: Mapping[str, Any] = MappingProxyType({})
    documents: Mapping[str, Mapping[str, str]] = MappingProxyType({})

    def __init__(self, model: str = "dia", *, gate: threading.Semaphore | None = None):
        self.model, self.gate, self.log = model, gate, []
        self.asked: list[tuple[str, Any, Any]] = []
        self.load: Callable[[], Any] = lambda: Singers(self.log, self.gate)

    @property
    def spec(self) -> models.Model:
        """The facts about the model."""
        return models.MODELS[self.model]

    def request(self, text: str, options: Mapping[str, Any], prompt: Any) -> Said:
        """Check a text."""
        chosen = changed(options_class(self.model)(), options)
        if models.MODELS[self.model].needs_voice and prompt is None:
            raise UsageError("prompt: the model needs a reference voice")
        return self.said(text, chosen, prompt)

    def live(self, text: str, options: Mapping[str, Any], prompt: Any) -> Any:
        """Check the first piece of a text that arrives in pieces."""
        chosen = changed(options_class(self.model)(), options)
        if self.fed:
            return self.said(text, chosen, prompt)
        return LiveText(self.said, chosen, SameVoices(prompt)).begun(text)

    def said(self, text: str, chosen: Any, prompt: Any) -> Said:
        """Check a text whose options are checked."""
        check_words("text", text)
        self.asked.append((text, chosen, prompt))
        return Said(tuple(text.split()), chosen.seed or 0)


def of_letters(letters: str, **more: Any) -> Talk:
    """A talk that has learned only some letters."""
    talk = Talk(**more)
    rules = json.dumps(TextRules(alphabet=f"{letters}.").to_dict())
    talk.documents = {"dia": {RULES: rules}}
    return talk


def expected(text: str, name: str = "mp3") -> bytes:
    """The body of a text in a format."""
    rate = 24000 if name == "pcm" else None
    encoder = StreamEncoder(FORMATS[name], talkers.RATE, rate=rate)
    return b"".join([*(encoder.add(talkers.sound(word)) for word in text.split()), encoder.finish()])


@dataclass
class Served:
    """A running server."""

    url: str
    service: Service
    server: Server

    def post(self, path: str = "/v1/audio/speech", **body: Any) -> httpx.Response:
        """Send a JSON body."""
        headers = {"content-type": "application/json"}
        return httpx.post(self.url + path, content=json.dumps(body), headers=headers, timeout=SOON)

    def get(self, path: str, **more: Any) -> httpx.Response:
        """Get a path."""
        return httpx.get(self.url + path, timeout=SOON, **more)

    def figure(self, name: str) -> float:
        """Sum the samples of a metric whose lines begin with `name`."""
        return figure(self.url, name)


def figure(url: str, name: str) -> float:
    """Sum the samples of a metric of the server at `url` whose lines begin with `name`."""
    lines = httpx.get(f"{url}/metrics", timeout=SOON).text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


@contextmanager
def served(
    folder: Path, source: Any = None, *, wait: bool = True, settings: Settings | None = None
) -> Iterator[Served]:
    """Serve one model, named "talk", or a dict of several. folder: of the voices."""
    sources = source if isinstance(source, dict) else {"talk": source or Talk()}
    settings = replace(settings or Settings(), port=0)
    metrics = Metrics()
    engine = SpeechEngine(
        cast(dict[str, ModelSource], sources),
        max_queue=settings.max_queue,
        places=settings.places,
        warm_up=False,
        on_end=metrics.ended,
    )
    metrics.watch(engine.statistics)
    service = Service(engine, VoiceStore(folder), settings, metrics)

    async def look() -> None:
        pass

    server = Server(http(service, look), wyoming(service))
    thread = threading.Thread(target=server.run, name="http")
    thread.start()
    until(lambda: server.started)
    if wait:
        engine.start()
        assert engine.wait_ready(SOON)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield Served(f"http://127.0.0.1:{port}", service, server)
    finally:
        for each in sources.values():
            if isinstance(each, Talk) and each.gate is not None:
                each.gate.release(100_000)
        engine.close()
        server.should_exit = True
        thread.join(SOON)
        assert not thread.is_alive()


def filled(server: Served, source: Talk) -> list[Speech]:
    """Two requests of a server with one place and a gate: one that holds the place, and one that waits."""
    holder = server.service.engine.submit("talk", "holder")
    until(lambda: "join holder" in source.log)
    return [holder, server.service.engine.submit("talk", "waiter")]


def until(check: Callable[[], object]) -> None:
    """Wait until it is true."""
    end = time.perf_counter() + SOON
    while not check():
        assert time.perf_counter() < end
        time.sleep(0.002)


def error_of(response: httpx.Response) -> dict[str, Any]:
    """Require an error in OpenAI's schema."""
    content = response.json()
    assert set(content) == {"error"}, content
    error = content["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert isinstance(error["type"], str)
    assert error["message"]
    assert "/tmp" not in error["message"]
    assert response.headers["x-request-id"].startswith("req_")
    return error


def recording(seconds: float = 2.0) -> tuple[np.ndarray, int]:
    """A sound that can be a voice."""
    noise = np.random.default_rng(0).normal(0, 0.1, round(seconds * 16000))
    return noise.astype(np.float32), 16000

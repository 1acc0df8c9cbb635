"""The end of a server whose requests are not finished within its time to drain: 503, and a line each."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.mlx_port.commands.serve.served import SOON, figure, until

pytestmark = pytest.mark.rest

ROOT = Path(__file__).parents[4]
RUN = """
import sys
import time
from pathlib import Path
from mlx_port.commands.serve import run
from mlx_port.commands.serve.metrics import Metrics
from mlx_port.commands.serve.service import Service
from mlx_port.commands.serve.settings import Settings
from tests.mlx_port.commands.serve.served import Talk
from tests.tts_core.serving import talkers
from tts_core.serving.engine import SpeechEngine
from tts_core.serving.voices import VoiceStore

class Slow(talkers.Chorus):
    def step(self):
        time.sleep(0.05)
        return super().step()

talk, singers = Talk(), talkers.Singers([], None)
singers.session = lambda places: Slow(places, [])
talk.load = lambda: singers
settings = Settings(port=0, places=3, warm_up=False, drain_seconds=1)
metrics = Metrics()
with run._logging(20):
    engine = SpeechEngine({"talk": talk}, places=3, warm_up=False, on_end=metrics.ended)
    metrics.watch(engine.statistics)
    code = run._serve(Service(engine, VoiceStore(Path(sys.argv[1])), settings, metrics))
    engine.close()
sys.exit(code)
"""
LONG = "word " * 800


@pytest.fixture
def ended(tmp_path: Path) -> tuple[list[Any], list[str], int]:
    """What 12 clients, of which 3 are heard, and a WebSocket got at SIGTERM; the log; the exit code."""
    words = [sys.executable, "-c", RUN, str(tmp_path)]
    with subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        log: list[str] = []
        reading = threading.Thread(target=lambda: log.extend(process.stderr))  # pyright: ignore
        reading.start()
        until(lambda: any("Uvicorn running on" in line for line in log))
        [url] = [line.split(" on ")[1].split()[0] for line in log if "Uvicorn running on" in line]
        until(lambda: httpx.get(f"{url}/health", timeout=SOON).status_code == 200)
        found: list[Any] = []

        def ask() -> None:
            try:
                answer = httpx.post(f"{url}/v1/audio/speech", json={"input": LONG}, timeout=SOON)
                found.append((answer.status_code, answer.json()["error"]["code"]))
            except httpx.RemoteProtocolError:
                found.append("cut")

        clients = [threading.Thread(target=ask) for _ in range(12)]
        for client in clients:
            client.start()
        until(lambda: figure(url, "mlx_port_running ") == 3)
        until(lambda: figure(url, "mlx_port_queued ") == 9)
        with connect(url.replace("http", "ws") + "/v1/audio/speech/stream") as talking:
            talking.send('{"type": "start"}')
            talking.recv(SOON)
            process.send_signal(signal.SIGTERM)
            code = process.wait(SOON)
            found.append(last(talking))
        for thread in (*clients, reading):
            thread.join(SOON)
    return found, log, code


def last(talking: ClientConnection) -> str | bytes:
    """The last message of a connection that the server closes because it is closing itself."""
    messages = []
    try:
        while True:
            messages.append(talking.recv(SOON))
    except ConnectionClosed:
        assert talking.close_code == 1013
        return messages[-1]


def test_sigterm_past_the_drain(ended: tuple[list[Any], list[str], int]) -> None:
    found, log, code = ended
    *spoken, live = found
    assert code == 0
    assert spoken.count("cut") == 3  # their sound had begun
    assert spoken.count((503, "closing")) == 9
    assert '"code": "closing"' in live
    assert [line for line in log if "Traceback" in line or "Event loop is closed" in line] == []
    assert [line for line in log if line[0] in " \t" or "Error" in line] == []  # a line each

"""`mlx-port serve` as a process: flags, start, speech of the embedded voice, signals, exit codes."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile

from mlx_port.commands.serve import command
from tests.mlx_port.commands.running import one_line, run
from tests.mlx_port.commands.serve.served import SOON, figure, until

pytestmark = pytest.mark.rest

ROOT = Path(__file__).parents[4]
RUN = "import sys; from mlx_port.commands.main import main; sys.argv[0] = 'mlx-port'; main()"
pytest.importorskip("mlx.core", reason="MLX is not installed")


@contextmanager
def started(folder: Path, *flags: str) -> Iterator[tuple[subprocess.Popen, str, list]]:
    """Run the command on a free port; give its process, address and log."""
    words = [sys.executable, "-c", RUN, "serve", "--port", "0", "--voices", str(folder / "voices"), *flags]
    with subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        log: list[str] = []
        assert process.stderr is not None
        reader = threading.Thread(target=lambda: log.extend(iter(process.stderr.readline, "")))  # pyright: ignore[reportOptionalMemberAccess]
        reader.start()
        try:
            for words in ("running on", "ready: "):
                until(lambda words=words: any(words in line for line in log) or process.poll() is not None)
            found = re.search(r"running on (http://\S+)", "".join(log))
            assert found is not None, "".join(log)
            yield process, found[1], log
        finally:
            process.kill()
            reader.join()


def test_the_embedded_voice_is_served_and_drained(tmp_path: Path) -> None:
    """Three at once sound as each alone; SIGTERM lets a speech end, and the exit code is 0."""
    with started(tmp_path) as (process, url, log):
        assert f"page and API: listening on {url}/\n" in "".join(log)
        text = {"input": "[S1] Hello there.", "seed": 5, "response_format": "wav"}
        alone = httpx.post(f"{url}/v1/audio/speech", json=text, timeout=600)
        assert (alone.status_code, alone.headers["x-seed"]) == (200, "5")
        sound, rate = soundfile.read(io.BytesIO(alone.content))
        assert rate == 16000
        assert np.abs(sound).max() > 0.01
        answers: dict[int, httpx.Response] = {}

        def ask(place: int) -> None:
            body = (
                text if place else {**text, "input": "[S1] A longer text, of two sentences. This one, too."}
            )
            answers[place] = httpx.post(f"{url}/v1/audio/speech", json=body, timeout=600)

        threads = [threading.Thread(target=ask, args=(place,)) for place in range(3)]
        for thread in threads:
            thread.start()
        until(lambda: figure(url, "mlx_port_running "))
        assert figure(url, 'mlx_port_arithmetic{arithmetic="float32"}') == 1
        assert figure(url, 'mlx_port_codec_precision{model="embedded",precision="float32"}') == 1
        process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join()
        assert [answers[place].status_code for place in range(3)] == [200] * 3
        assert answers[1].content == answers[2].content == alone.content
        assert process.wait(SOON) == 0
        assert "Traceback" not in "".join(log)
        assert "Hello" not in "".join(log), "texts are not logged"


def test_open_a_port_that_is_taken_and_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The browser starts once the server is ready; a second server is refused in a line."""
    visited = tmp_path / "visited"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {visited}.new && mv {visited}.new {visited}\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(browser))
    with started(tmp_path, "--no-warm-up", "--open") as (process, url, _):
        until(visited.exists)
        assert visited.read_text() == f"{url}/"
        words = [sys.executable, "-c", RUN, "serve", "--quiet", "--port", url.rpartition(":")[2]]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 2
        *_, last = done.stderr.splitlines()
        assert last.startswith("error: port: 127.0.0.1:")
        assert last.endswith("cannot be opened; another program may use it: give another --port or --host")
        process.send_signal(signal.SIGINT)
        assert process.wait(SOON) == 130


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["--model", "no/such"], 3, "model: "),
        (["--model", "a/b"], 3, "model: a/b is not in the hub's cache on this machine"),
        (["--cors", "*"], 2, "cors: '*' is no origin; give it as https://example.org"),
        (["--cors", "https://a.example/path"], 2, "is no origin"),
        (["--api-key", " "], 2, "api-key: empty, or with characters"),
        (["--api-key", "ä"], 2, "api-key: empty, or with characters"),
        (["--port", "70000"], 2, "70000"),
        (["--max-queue", "0"], 2, "max-queue"),
        (["--idle-unload", "-1"], 2, "idle-unload"),
        (["--backend", "jax"], 2, "jax"),
        (["--wyoming", "x"], 2, "wyoming: 'x' is no port; give it as 10200, or as 127.0.0.1:10200"),
        (["--wyoming", "host:"], 2, "is no port"),
        (["--wyoming", ":5"], 2, "is no port"),
        (["--wyoming", "70000"], 2, "is no port"),
    ],
)
def test_flags_that_cannot_be_used(capsys, flags, code, message) -> None:
    one_line(capsys, code, message, "serve", *flags)


def test_without_the_extra(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    one_line(capsys, 3, "serve: pydantic is not installed; pip install 'mlx-port[serve]'", "serve")


def test_without_the_extra_for_wyoming(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, before a model is opened."""
    find = command.find_spec
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "wyoming" else find(name))
    words = ["serve", "--model", "no/such", "--wyoming", "10200"]
    one_line(capsys, 3, "wyoming: it is not installed; pip install 'mlx-port[wyoming]'", *words)


def test_home_assistant_hears_the_embedded_voice(tmp_path: Path) -> None:
    """Over its own client; text that streams in is spoken; a port that is taken is one line."""
    pytest.importorskip("wyoming", reason="wyoming is not installed: extra wyoming")
    from tests.mlx_port.commands.serve.wyoming.asking import streamed

    with started(tmp_path, "--no-warm-up", "--wyoming", "0") as (process, _, log):
        found = re.search(r"wyoming: listening on tcp://127.0.0.1:(\d+)", "".join(log))
        assert found is not None, "".join(log)
        sound = streamed(
            ("127.0.0.1", int(found[1])), "[S1] Hello there, my ", "dear friends. How", " are you?"
        )
        samples = np.frombuffer(sound, "<i2") / 32768
        assert len(samples) > 24000
        assert np.abs(samples).max() > 0.01
        words = [sys.executable, "-c", RUN, "serve", "--quiet", "--port", "0", "--wyoming", found[1]]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 2
        *_, last = done.stderr.splitlines()
        assert last.startswith(f"error: wyoming: 127.0.0.1:{found[1]} cannot be opened")
        process.send_signal(signal.SIGTERM)
        assert process.wait(SOON) == 0


def test_an_idle_model_is_unloaded_and_loaded_again(tmp_path: Path) -> None:
    """As /metrics and /v1/models say; the next request speaks, and then it is unloaded once more."""
    with started(tmp_path, "--no-warm-up", "--idle-unload", "1") as (process, url, log):
        body = {"input": "[S1] Hello there.", "seed": 5, "response_format": "wav"}
        sounds = []
        for _ in range(2):
            until(lambda: figure(url, "mlx_port_loaded_models") == 0)
            assert httpx.get(f"{url}/v1/models", timeout=SOON).json()["data"][0]["loaded"] is False
            assert httpx.get(f"{url}/health", timeout=SOON).status_code == 200
            answer = httpx.post(f"{url}/v1/audio/speech", json=body, timeout=600)
            assert answer.status_code == 200
            sounds.append(answer.content)
        assert sounds[0] == sounds[1]
        until(lambda: sum("is unloaded" in line for line in log) == 3)
        process.send_signal(signal.SIGTERM)
        assert process.wait(SOON) == 0


def test_the_key_may_be_in_the_environment(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    class Run:
        @staticmethod
        def run(settings, *, quiet: bool) -> int:
            seen.append(settings)
            return 0

    monkeypatch.setitem(sys.modules, "mlx_port.commands.serve.run", Run)  # pyright: ignore[reportArgumentType]
    monkeypatch.setenv("MLX_PORT_API_KEY", "secret")
    origins = ("app://obsidian.md", "app://.", "tauri://localhost", "chrome-extension://abc", "https://a.org")
    allowed = [word for origin in origins for word in ("--cors", origin)]
    assert run(capsys, "serve", "--model", "a", "--model", "b", "--idle-unload", "60", *allowed)[0] == 0
    [settings] = seen
    assert (settings.access.api_key, settings.models, settings.idle_unload) == ("secret", ("a", "b"), 60)
    assert settings.access.origins == origins
    assert (settings.access.host, settings.port, settings.warm_up) == ("127.0.0.1", 8000, True)
    assert "secret" not in "".join(os.sys.argv)  # pyright: ignore[reportAttributeAccessIssue]

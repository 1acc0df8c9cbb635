"""Clients with packages of their own, in the environment that `nox --session clients` makes: OpenAI's for
JavaScript in Node and in Chromium, LiveKit's and Pipecat's OpenAI plugins.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from mlx_port.commands.serve.settings import Access, Settings
from tests.mlx_port.commands.serve.served import SOON, Served, expected, served
from tests.mlx_port.commands.serve.web.chromium import Page, chromium

pytestmark = pytest.mark.rest

HERE = Path(__file__).parent
ENVIRONMENT = HERE.parents[4] / "build/anywhere/clients"
JAVASCRIPT = ENVIRONMENT / "node_modules/openai"
PYTHON = ENVIRONMENT / "bin/python"
MADE = "make anywhere ONLY=clients"
SAID = "one two three"
OPENAI = {"model": "gpt-4o-mini-tts", "voice": "coral", "input": SAID, "instructions": "Cheerfully."}
SPEAK = """
const [key, baseURL, fields, done] = arguments;
const speak = async () => {
  const {default: OpenAI} = await import("/index.mjs");
  const client = new OpenAI({apiKey: key, baseURL, maxRetries: 0, dangerouslyAllowBrowser: true});
  const answer = await client.audio.speech.create(fields);
  const seed = answer.headers.get("x-seed");
  return {seed, sound: Array.from(new Uint8Array(await answer.arrayBuffer()))};
};
speak().then(done, error => done({error: error.constructor.name, status: error.status ?? null}));
"""

needs_javascript = pytest.mark.skipif(
    not JAVASCRIPT.is_dir(), reason=f"npm's openai is not installed: {MADE}"
)
needs_plugins = pytest.mark.skipif(
    not PYTHON.is_file(), reason=f"LiveKit and Pipecat are not installed: {MADE}"
)


class Files(SimpleHTTPRequestHandler):
    """A site of files."""

    extensions_map = {**SimpleHTTPRequestHandler.extensions_map, ".mjs": "text/javascript"}  # noqa: RUF012

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@contextmanager
def site(folder: Path) -> Iterator[str]:
    """Serve a folder from an origin of its own, which is returned."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def run(*command: str | Path) -> bytes:
    """Return what a client writes; its errors are the test's."""
    done = subprocess.run([*map(str, command)], capture_output=True, timeout=SOON, check=False)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return done.stdout


@needs_javascript
@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
@pytest.mark.parametrize("form", ["mp3", "pcm"])
def test_openai_in_node(shared: Served, form: str) -> None:
    fields = json.dumps({**OPENAI, "response_format": form})
    sound = run("node", HERE / "openai_speaks.mjs", JAVASCRIPT / "index.mjs", f"{shared.url}/v1", fields)
    assert sound == expected(SAID, form)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(tmp_path_factory.mktemp("downloads")) as page:
        page.driver.set_script_timeout(SOON)
        yield page


@pytest.fixture(scope="module")
def allowed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Served]]:
    """A site, and a server that lets its pages in, with a key."""
    with site(JAVASCRIPT) as origin:
        settings = Settings(access=Access(api_key="a key", origins=(origin,)))
        with served(tmp_path_factory.mktemp("voices"), settings=settings) as server:
            yield origin, server


@needs_javascript
@pytest.mark.browser
def test_openai_in_chromium(browser: Page, allowed: tuple[str, Served]) -> None:
    """From an allowed origin: the browser asks for the client's own headers first. The page may read ours."""
    origin, server = allowed
    browser.driver.get(f"{origin}/package.json")
    fields = {**OPENAI, "response_format": "wav", "stream_format": "audio"}
    answer = browser.driver.execute_async_script(SPEAK, "a key", f"{server.url}/v1", fields)
    assert bytes(answer["sound"]) == expected(SAID, "wav")
    assert int(answer["seed"]) >= 0
    wrong = browser.driver.execute_async_script(SPEAK, "another", f"{server.url}/v1", fields)
    assert wrong == {"error": "AuthenticationError", "status": 401}


@needs_javascript
@pytest.mark.browser
def test_a_page_that_is_not_allowed(browser: Page, allowed: tuple[str, Served]) -> None:
    """Nothing is spoken."""
    _, server = allowed
    before = server.service.engine.statistics().steps
    with site(JAVASCRIPT) as other:
        browser.driver.get(f"{other}/package.json")
        answer = browser.driver.execute_async_script(SPEAK, "a key", f"{server.url}/v1", OPENAI)
    assert answer == {"error": "APIConnectionError", "status": None}
    assert server.service.engine.statistics().steps == before


@needs_plugins
@pytest.mark.parametrize("plugin", ["livekit", "pipecat"])
@pytest.mark.parametrize("instructions", ["", "Cheerfully."])
def test_a_plugin_speaks(shared: Served, plugin: str, instructions: str) -> None:
    """LiveKit pads the last frame."""
    words = (shared.url, SAID, "gpt-4o-mini-tts", "alloy", "pcm", instructions)
    sound, told = run(PYTHON, HERE / f"{plugin}_speaks.py", *words), expected(SAID, "pcm")
    assert sound[: len(told)] == told
    assert sound[len(told) :].strip(b"\0") == b""
    assert len(sound) - len(told) < 2 * 24000 // 50


@needs_plugins
@pytest.mark.parametrize("model", ["tts-1", "gpt-4o-mini-tts"])  # asked for as sound and as events
@pytest.mark.parametrize("form", ["mp3", "wav", "opus"])
def test_livekit_reads_formats(shared: Served, model: str, form: str) -> None:
    """It decodes and resamples them to 24 kHz; MP3 is its default."""
    sound = run(PYTHON, HERE / "livekit_speaks.py", shared.url, SAID, model, "ash", form, "")
    assert len(sound) / 2 / 24000 == pytest.approx(0.75, abs=0.25)

"""The examples of /docs, run as they are written there."""

from __future__ import annotations

import html
import os
import re
import shlex
from pathlib import Path

import httpx
import pytest
import soundfile

from mlx_port.commands.serve import app
from mlx_port.commands.serve.examples import STREAM
from mlx_port.commands.serve.settings import Access, Settings
from tests.mlx_port.commands.serve.served import SOON, Served, recording, served

KEY = "a long random word"


def curl(words: list[str]) -> httpx.Response:
    """Do what curl does with the flags of the examples."""
    url, method, headers, sent = "", None, {}, {}
    fields, files = dict[str, str](), dict[str, tuple[str, bytes]]()
    given, output = iter(words), None
    for word in given:
        if word.startswith("http"):
            url = word
        elif word == "-H":
            name, _, value = next(given).partition(": ")
            headers[name] = value
        elif word in ("-d", "--data-binary"):
            value = next(given)
            sent["content"] = Path(value[1:]).read_bytes() if value.startswith("@") else value.encode()
        elif word == "-F":
            name, _, value = next(given).partition("=")
            if value.startswith("@"):
                files[name] = value[1:], Path(value[1:]).read_bytes()
            else:
                fields[name] = value
        elif word == "-X":
            method = next(given)
        else:
            assert word == "--output"
            output = Path(next(given))
    if files:
        sent |= {"data": fields, "files": files}
    answer = httpx.request(method or ("POST" if sent else "GET"), url, headers=headers, timeout=SOON, **sent)
    if output is not None:
        output.write_bytes(answer.content)
    return answer


def shown(server: Served) -> dict[str, str]:
    """The examples of the page by the method and path that they are under."""
    page = server.get("/docs")
    assert page.status_code == 200, "the page itself needs no key"
    found = re.findall(r"<h2><code>(.*?)</code></h2>.*?<pre>(.*?)</pre>", page.text, re.DOTALL)
    return {html.unescape(route): html.unescape(lines) for route, lines in found}


@pytest.mark.parametrize("key", [None, KEY])
def test_every_example_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str | None) -> None:
    """In an order in which each finds what it needs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLX_PORT_API_KEY", KEY)
    soundfile.write("anna.wav", *recording())
    with served(tmp_path / "voices", settings=Settings(access=Access(api_key=key))) as server:
        found = shown(server)
        assert {route.split()[1] for route in found} == {
            route.path.replace(":path", "") for route in app._ROUTES
        } - {
            "/",
            "/page/{name}",
        }
        exec(compile(found.pop(f"GET {STREAM}"), "example", "exec"), {})
        assert (tmp_path / "hello.pcm").stat().st_size > 1000
        for route in sorted(found, key=lambda route: (route.startswith("DELETE"), route)):
            words = shlex.split(os.path.expandvars(found[route]).replace("\\\n", " "))
            answer = curl(words[1:])
            assert words[0] == "curl"
            assert answer.status_code == 200, (route, answer.text)
            assert answer.request.method == route.split()[0]
        assert (tmp_path / "hello.mp3").stat().st_size > 0
        assert (key is None) == (server.get("/v1/models").status_code == 200)

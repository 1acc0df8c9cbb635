"""Keys, hosts and origins: no web page can drive a local server."""

from __future__ import annotations

import hmac
from contextlib import suppress
from typing import Any

import httpx
import pytest
from starlette.routing import Route

from mlx_port.commands.main import run
from mlx_port.commands.serve.settings import Access, Limits, Settings
from tests.mlx_port.commands.serve.live.client import raw, said
from tests.mlx_port.commands.serve.served import SOON, Served, error_of, served

KEY = "a long random word"
PAGE = "https://example.org"
SPEECH = {"input": "one"}


def post(server: Served, **headers: str) -> httpx.Response:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.post(server.url + "/v1/audio/speech", json=SPEECH, headers=names, timeout=SOON)


@pytest.fixture
def locked(tmp_path):
    settings = Settings(access=Access(api_key=KEY, origins=(PAGE,)))
    with served(tmp_path, settings=settings) as found:
        yield found


@pytest.mark.parametrize(
    "sent",
    [None, "", KEY, "Bearer", f"Basic {KEY}", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", "Bearer ä"],
)
def test_a_wrong_key(locked: Served, sent) -> None:
    headers = {} if sent is None else {"authorization": sent.encode("latin-1")}
    for method, path in (
        ("POST", "/v1/audio/speech"),
        ("GET", "/metrics"),
        ("GET", "/v1/models"),
        ("GET", "/no"),
    ):
        response = httpx.request(method, locked.url + path, headers=headers, timeout=SOON)
        assert response.status_code == 401
        assert error_of(response)["type"] == "authentication_error"
        assert response.headers["www-authenticate"] == "Bearer"
        assert KEY not in response.text
    assert locked.get("/health").status_code == 200


OPEN = {"/health", "/ready", "/", "/docs"}  # and the page's files


def test_every_route_asks_for_the_key_and_the_origin(locked: Served) -> None:
    """But /health and the pages, which ask for the origin, too."""
    app: Any = locked.server.config.app
    routes = [route for route in app.app.routes if isinstance(route, Route)]
    assert len(routes) > 12
    for route in routes:
        for method in route.methods or ():
            url = locked.url + route.path.replace("{id}", "talk").replace("{name}", "page.js")
            status = httpx.request(method, url, timeout=SOON).status_code
            assert (status == 401) == (route.path not in OPEN and "/page/" not in url), (method, url)
            refused = httpx.request(method, url, headers={"origin": "https://evil.example"}, timeout=SOON)
            assert refused.status_code == 403, (method, url)


def test_the_right_key(locked: Served) -> None:
    assert post(locked, authorization=f"Bearer {KEY}").status_code == 200
    assert post(locked, authorization=f"bearer  {KEY}").status_code == 200


def test_keys_are_compared_in_constant_time(locked: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """By `hmac.compare_digest`, on digests of one length, of a header and of a WebSocket's first message."""
    seen, compare = [], hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda *both: seen.append(both) or compare(*both))
    post(locked, authorization="Bearer x")
    said(locked, "one", api_key="x")
    assert [[len(one) for one in both] for both in seen] == [[32, 32]] * 2


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:1", "http://127.0.0.1", "file://", "", PAGE]
)
def test_pages_of_other_sites(shared: Served, origin: str) -> None:
    steps = shared.service.engine.statistics().steps
    response = post(shared, origin=origin)
    assert response.status_code == 403
    assert error_of(response)["code"] == "origin_refused"
    assert "access-control-allow-origin" not in response.headers
    assert httpx.options(shared.url + "/v1/audio/speech", headers={"origin": origin}).status_code == 403
    assert shared.service.engine.statistics().steps == steps


def test_the_page_of_the_server_itself(shared: Served) -> None:
    assert post(shared, origin=shared.url).status_code == 200
    assert post(shared, origin=shared.url.replace("http:", "https:")).status_code == 200


def test_a_page_that_is_allowed(locked: Served) -> None:
    """It asks first, without its key, and may read the answer's headers; errors carry them, too."""
    asked = {"origin": PAGE, "access-control-request-method": "POST"}
    first = httpx.options(locked.url + "/v1/audio/speech", headers=asked)
    assert first.status_code == 204
    assert "POST" in first.headers["access-control-allow-methods"]
    assert "authorization" in first.headers["access-control-allow-headers"]
    for response in (
        first,
        post(locked, origin=PAGE, authorization=f"Bearer {KEY}"),
        post(locked, origin=PAGE),
    ):
        assert response.headers["access-control-allow-origin"] == PAGE
        assert "x-seed" in response.headers["access-control-expose-headers"]
        assert response.headers["vary"] == "Origin"
    assert post(locked, origin=PAGE).status_code == 401


OPENAI = (  # of OpenAI's JavaScript client
    "authorization,content-type,x-stainless-arch,x-stainless-lang,x-stainless-os,x-stainless-package-version,"
    "x-stainless-retry-count,x-stainless-runtime,x-stainless-runtime-version,x-stainless-timeout"
)


def preflight(server: Served, origin: str) -> httpx.Response:
    names = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": OPENAI,
    }
    return httpx.options(server.url + "/v1/audio/speech", headers=names, timeout=SOON)


def test_a_page_that_is_allowed_may_send_the_headers_that_it_asks_for(locked: Served) -> None:
    """No other page may."""
    answer = preflight(locked, PAGE)
    assert (answer.status_code, answer.headers["access-control-allow-headers"]) == (204, OPENAI)
    assert answer.headers["access-control-allow-origin"] == PAGE
    refused = preflight(locked, "https://evil.example")
    assert refused.status_code == 403
    assert not [name for name in refused.headers if name.startswith("access-control")]
    assert "warning" in post(locked, origin=PAGE).headers["access-control-expose-headers"]


PROGRAMS = (
    "app://obsidian.md",
    "app://.",
    "tauri://localhost",
    "capacitor://localhost",
    "chrome-extension://abc",
)


@pytest.mark.parametrize("origin", PROGRAMS)
def test_programs_that_are_allowed(tmp_path: Any, shared: Served, origin: str) -> None:
    """By their origins, which are refused otherwise."""
    with served(tmp_path, settings=Settings(access=Access(origins=(origin,)))) as server:
        assert preflight(server, origin).headers["access-control-allow-origin"] == origin
        assert post(server, origin=origin).headers["access-control-allow-origin"] == origin
        assert post(server, origin=f"{origin}x").status_code == 403
    assert post(shared, origin=origin).status_code == 403


@pytest.mark.parametrize(
    "origin",
    ["file://", "null", "app://", "app:obsidian", "data://x", "tauri://a/b", "javascript://a", "app://*"],
)
def test_what_is_no_origin(capsys: pytest.CaptureFixture[str], origin: str) -> None:
    assert run(["serve", "--cors", "https://example.org", "--cors", origin]) == 2
    assert f"cors: {origin!r} is no origin" in capsys.readouterr().err


@pytest.mark.parametrize("path", ["/health", "/ready"])
@pytest.mark.parametrize(
    ("version", "headers", "status"),
    [
        ("1.0", b"", 200),
        ("1.1", b"Host: localhost\r\nConnection: close\r\n", 200),
        ("1.0", b"Host: evil.example\r\n", 403),
        ("1.0", b"Origin: https://evil.example\r\n", 400),
        ("1.1", b"", 400),
    ],
)
def test_probes_of_health(shared: Served, path: str, version: str, headers: bytes, status: int) -> None:
    """Those of load balancers speak HTTP/1.0 and know no host."""
    assert answered(shared, path, version, headers).startswith(f"HTTP/1.1 {status} ")


@pytest.mark.parametrize("path", ["/v1/models", "/metrics", "/", "/docs", "/healthy"])
def test_other_routes_need_a_host(shared: Served, path: str) -> None:
    assert answered(shared, path, "1.0", b"").startswith("HTTP/1.1 400 ")


def answered(server: Served, path: str, version: str, headers: bytes) -> str:
    """Send a request as it is."""
    with raw(server) as client:
        client.sendall(f"GET {path} HTTP/{version}\r\n".encode() + headers + b"\r\n")
        client.settimeout(SOON)
        return b"".join(iter(lambda: client.recv(1 << 16), b"")).decode()


def test_ready_is_health(tmp_path: Any) -> None:
    with served(tmp_path, wait=False) as server:
        assert {server.get(path).status_code for path in ("/health", "/ready")} == {503}
        server.service.engine.start()
        assert server.service.engine.wait_ready(SOON)
        assert server.get("/ready").json() == server.get("/health").json()
        assert server.get("/ready").status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "localhost.evil.example", "x", "127.0.0.1.x"]
)
def test_a_name_that_is_made_to_point_here(shared: Served, host: str) -> None:
    response = post(shared, host=host)
    assert (response.status_code, error_of(response)["code"]) == (403, "host_refused")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:80", "127.0.0.1:1", "[::1]:8000", "a.localhost", "192.168.1.5"]
)
def test_names_and_addresses_of_this_machine(shared: Served, host: str) -> None:
    assert post(shared, host=host).status_code == 200


def test_a_name_that_is_given_and_any_name_with_a_key(tmp_path, locked: Served) -> None:
    with served(tmp_path, settings=Settings(access=Access(hosts=("TTS",)))) as server:
        assert post(server, host="tts:8000").status_code == 200
        assert post(server, host="tts2").status_code == 403
    assert post(locked, host="any.example", authorization=f"Bearer {KEY}").status_code == 200


def test_headers_that_are_given_twice(shared: Served) -> None:
    headers = [("origin", PAGE), ("origin", shared.url)]
    response = httpx.post(shared.url + "/v1/audio/speech", json=SPEECH, headers=headers, timeout=SOON)
    assert (response.status_code, error_of(response)["code"]) == (400, "invalid_header")


def test_a_body_without_a_length_is_read_no_further_than_its_limit(tmp_path) -> None:
    endless, kind = (b" " * 1000 for _ in range(10_000)), {"content-type": "application/json"}
    with (
        served(tmp_path, settings=Settings(limits=Limits(body=1000))) as server,
        suppress(httpx.WriteError),  # the server has answered and closed
    ):
        response = httpx.post(server.url + "/v1/audio/speech", content=endless, headers=kind, timeout=SOON)
        assert response.status_code == 413

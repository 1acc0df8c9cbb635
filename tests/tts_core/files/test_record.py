"""The record of a converted folder: what it names is read, what it does not name is refused."""

import hashlib
import json
from pathlib import Path

import pytest

from tests.tiny.record import record_again
from tests.tts_core.growth import peak_bytes
from tts_core.errors import CheckpointError, NotFoundError
from tts_core.files.record import RECORD, Record, Written

FILES = {
    "config.json": b"{}",
    "README.md": b"",
    "model.safetensors": b"root",
    "codec/model.safetensors": b"codec",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "codec").mkdir()
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / RECORD).write_text(json.dumps({"written": dict.fromkeys(FILES)}))
    record_again(tmp_path)
    return tmp_path


def test_it_names_the_weights_of_each_part(folder: Path) -> None:
    record = Record.read(folder)
    assert record.files["model.safetensors"] == Written(4, hashlib.sha256(b"root").hexdigest())
    assert record.parts() == ["", "codec"]
    assert record.weights("") == [folder / "model.safetensors"]
    assert record.weights("codec") == [folder / "codec/model.safetensors"]
    with pytest.raises(NotFoundError, match=r"no weights for .*nar on record; convert again"):
        record.weights("nar")


def test_a_stray_is_refused_by_its_name(folder: Path) -> None:
    for place in ("", "codec"):
        stray = folder / place / "model_backup.safetensors"
        stray.write_bytes(b"")
        with pytest.raises(
            CheckpointError, match=r"model_backup.safetensors: not on record in conversion.json"
        ):
            Record.read(folder).weights(place)
        stray.unlink()
    (folder / "._model.safetensors").write_bytes(b"")  # macOS writes those onto other file systems
    (folder / "notes.txt").write_bytes(b"")
    assert Record.read(folder).weights("")
    for place in range(9):
        (folder / f"{place}.safetensors").touch()
    with pytest.raises(CheckpointError, match=r"0.safetensors, 1.safetensors, 2.safetensors and 6 more"):
        Record.read(folder).weights("")


def test_sizes_are_compared(folder: Path) -> None:
    record = Record.read(folder)
    record.check_sizes()
    (folder / "codec/model.safetensors").write_bytes(b"code")
    assert record.weights("")
    for check in (record.check_sizes, lambda: record.weights("codec")):
        with pytest.raises(
            CheckpointError, match=r"codec/model.safetensors: 4 bytes, on record are 5; convert"
        ):
            check()
    (folder / "codec/model.safetensors").write_bytes(b"codecs")
    with pytest.raises(CheckpointError, match=r"codec/model.safetensors: 6 bytes, on record are 5; convert"):
        record.weights("codec")
    (folder / "codec/model.safetensors").unlink()
    with pytest.raises(NotFoundError, match=r"codec/model.safetensors: it is missing, a part of the model"):
        record.weights("codec")


def test_hashes_are_compared(folder: Path) -> None:
    record = Record.read(folder)
    record.check(["", "codec"])
    (folder / "codec/model.safetensors").write_bytes(b"coded")
    (folder / "README.md").write_text("the user's own")
    record.check([""])
    assert record.changed(["", "codec"]) == ["codec/model.safetensors"]
    with pytest.raises(CheckpointError, match=r"codec/model.safetensors: changed since the conversion"):
        record.check(["codec"])
    (folder / "config.json").unlink()
    with pytest.raises(NotFoundError, match=r"config.json: it is missing"):
        record.check([""])


def test_no_record(folder: Path) -> None:
    (folder / RECORD).unlink()
    with pytest.raises(
        NotFoundError, match=r"conversion.json: it is missing, a part of the model; convert again"
    ):
        Record.read(folder)


GOOD = {"bytes": 1, "sha256": "0" * 64}


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "{}",
        '{"written": []}',
        '{"written": {}}',
        *[
            json.dumps({"written": {"a.safetensors": entry}})
            for entry in (
                None,
                {},
                GOOD | {"bytes": -1},
                GOOD | {"bytes": True},
                GOOD | {"bytes": 1.0},
                GOOD | {"bytes": 2**70},
                GOOD | {"sha256": "0" * 63 + "g"},
                GOOD | {"sha256": None},
            )
        ],
        *[
            json.dumps({"written": {name: GOOD}})
            for name in ("", "/etc/passwd", "../a", "a/../b", "a/b/c", "a//b", "./a", "a\\b")
        ],
    ],
)
def test_a_damaged_record(content: str, folder: Path) -> None:
    (folder / RECORD).write_text(content)
    with pytest.raises(CheckpointError, match=r"conversion.json: "):
        Record.read(folder)


def test_hashing_takes_a_piece_at_a_time(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(bytes(2**24))
    assert peak_bytes(lambda: Written.of(folder / "model.safetensors")) < 2**22

"""Files that appear under their names whole, or not at all."""

import stat
from pathlib import Path

import pytest

from tts_core.files.whole import sync, whole_file


def test_the_name_appears_with_the_whole_content(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    with whole_file(path, 0o640) as file:
        file.write(b"new")
        assert not path.exists()
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_the_old_content_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    path.write_bytes(b"old")
    with pytest.raises(TypeError), whole_file(path, 0o644) as file:
        file.writelines([b"half", None])  # type: ignore[list-item]
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_files_and_folders_are_synced(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    sync(tmp_path / "file")
    sync(tmp_path)
    with pytest.raises(FileNotFoundError):
        sync(tmp_path / "missing")

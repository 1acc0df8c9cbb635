"""Files that appear under their names whole, or not at all, and files that grow by whole entries."""

import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tts_core.files.whole import append, sync, whole_file


def test_the_name_appears_with_the_whole_content(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    with whole_file(path, 0o640) as file:
        file.write(b"new")
        assert not path.exists()
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_permissions_are_those_of_a_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    with whole_file(tmp_path / "whole"):
        pass
    assert (tmp_path / "whole").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_an_error_leaves_the_old_content_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    path.write_bytes(b"old")
    with pytest.raises(TypeError), whole_file(path, 0o644) as file:
        file.writelines([b"half", None])  # type: ignore[list-item]
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let the kernel refuse files above a size."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_an_entry_that_the_disk_refuses_leaves_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    append(path, b"one\n", 0)
    append(path, b"two\nthree\n", 4)
    append(path, b"2\n", 4)
    assert path.read_bytes() == b"one\n2\n"
    with largest_file(20), pytest.raises(OSError, match="too large"):
        append(path, b"x" * 20, 6)
    assert path.read_bytes() == b"one\n2\n"
    append(path, b"3\n", 6)
    assert path.read_bytes() == b"one\n2\n3\n"


def test_an_entry_is_on_the_disk_before_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: sizes.append(os.fstat(handle).st_size))
    append(tmp_path / "lines", b"one\n", 0)
    append(tmp_path / "lines", b"two\n", 4)
    assert sizes == [4, 8]


def test_files_and_folders_are_synced(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    sync(tmp_path / "file")
    sync(tmp_path)
    with pytest.raises(FileNotFoundError):
        sync(tmp_path / "missing")

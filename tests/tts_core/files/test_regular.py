"""Regular files: nothing else is opened, a failing disk is one line, a change shows."""

import errno
import os
import socket
from pathlib import Path

import pytest

from tts_core.errors import CheckpointError, ResourceError, explain
from tts_core.files import regular
from tts_core.files.regular import check_unchanged, identity, opened, read_bytes, read_text


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with a short relative name, for a socket's path."""
    monkeypatch.chdir(tmp_path)
    return Path()


def test_what_is_not_a_file_is_refused_at_once(short: Path):
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
    Path("folder").mkdir()
    Path("link").symlink_to("pipe")
    for name, kind in (
        ("pipe", "a named pipe"),
        ("link", "a named pipe"),
        ("socket", "a socket"),
        ("folder", "a folder"),
        ("/dev/zero", "a device"),
    ):
        for read in (read_bytes, read_text, identity):
            with pytest.raises(CheckpointError, match=f"^{name}: {kind}, not a file$"):
                read(short / name)


def test_a_pipe_put_in_place_of_a_file_does_not_block(short: Path, monkeypatch: pytest.MonkeyPatch):
    Path("x").write_text("text")
    status = os.stat("x")
    Path("x").unlink()
    os.mkfifo("x")
    monkeypatch.setattr(os, "stat", lambda _: status)
    with pytest.raises(CheckpointError, match=r"^x: a named pipe"):
        read_bytes(Path("x"))


def test_a_failing_disk_is_named_with_the_file(tmp_path: Path):
    path = tmp_path / "x"
    path.write_bytes(b"123")
    with pytest.raises(ResourceError) as caught, opened(path):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    assert explain(caught.value) == (
        5,
        f"{path}: cannot be read (Input/output error); check the disk, or copy the file",
    )


def test_missing_and_forbidden_files_stay_what_they_are(tmp_path: Path):
    with pytest.raises(FileNotFoundError) as caught:
        read_bytes(tmp_path / "absent")
    assert explain(caught.value) == (3, f"{tmp_path / 'absent'}: No such file or directory")
    (tmp_path / "x").touch()
    with pytest.raises(PermissionError), opened(tmp_path / "x"):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def test_a_name_that_no_file_system_takes(tmp_path: Path):
    with pytest.raises(CheckpointError, match=r"cannot be read \(File name too long\)"):
        read_bytes(tmp_path / ("x" * 300))


def test_a_larger_file_than_is_read(tmp_path: Path):
    (tmp_path / "x").write_bytes(bytes(101))
    assert len(read_bytes(tmp_path / "x", 101)) == 101
    with pytest.raises(CheckpointError, match="larger than 100 bytes"):
        read_bytes(tmp_path / "x", 100)


def test_text_that_is_not_utf_8(tmp_path: Path):
    (tmp_path / "x").write_bytes(b"abc\r\n\xff")
    with pytest.raises(CheckpointError, match=r"x: not UTF-8 \(invalid start byte at byte 5\)"):
        read_text(tmp_path / "x")
    (tmp_path / "x").write_bytes(b"abc\r\n\xc3\xa4")
    assert read_text(tmp_path / "x") == "abc\r\nä"


@pytest.mark.parametrize("change", ["size", "time", "replaced", "gone"])
def test_a_change_shows(tmp_path: Path, change: str):
    path = tmp_path / "x"
    path.write_bytes(b"0123456789")
    before = identity(path)
    check_unchanged(path, before)
    status = path.stat()
    if change == "size":
        path.write_bytes(b"01234567890")
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    elif change == "time":
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    else:
        path.rename(tmp_path / "old")
    if change == "replaced":
        path.write_bytes(b"0123456789")
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(CheckpointError, match="changed while it was read"):
        check_unchanged(path, before)
    if change != "gone":
        with pytest.raises(CheckpointError, match="changed while it was read"), opened(path, before):
            pass


def test_a_file_that_ends_early(tmp_path: Path):
    (tmp_path / "x").write_bytes(b"123")
    with (
        pytest.raises(CheckpointError, match="changed while it was read"),
        opened(tmp_path / "x") as file,
    ):
        regular.read_into(file, memoryview(bytearray(4)), tmp_path / "x")

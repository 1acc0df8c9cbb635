"""Folders and files that nobody else can change."""

import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tts_core.files import private
from tts_core.files.private import check_file, check_folder, make_folder

FOLDER, FILE = stat.S_IFDIR, stat.S_IFREG


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> dict[Path, tuple[int, int]]:
    """Owner, as a difference to the user's, and mode of paths; other folders are root's, 0755."""
    found: dict[Path, tuple[int, int]] = {}

    def status(path: Path) -> Any:
        owner, mode = found.get(path, (None, FOLDER | 0o755))
        return SimpleNamespace(st_uid=0 if owner is None else os.getuid() + owner, st_mode=mode)

    monkeypatch.setattr(private, "_status", status)
    monkeypatch.setenv("HOME", "/home/me")
    return found


def test_missing_folders_are_made_for_the_user_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_folder(tmp_path / "a" / "b")
        make_folder(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    for folder in (tmp_path / "a", tmp_path / "a" / "b"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_file_in_the_way_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(OSError, match="a"):
        make_folder(tmp_path / "a" / "b")


@pytest.mark.parametrize(
    ("owner", "mode"), [(0, 0o700), (0, 0o755), (None, 0o755), (0, 0o1777), (0, 0o1770), (None, 0o1777)]
)
def test_own_and_sticky_folders_are_private(states: dict[Path, Any], owner: int | None, mode: int) -> None:
    for place in ("/home/me", "/home/me/.cache"):
        states[Path(place)] = (owner, FOLDER | mode)
        check_folder(Path("/home/me/.cache/mlx-port"))


@pytest.mark.parametrize(
    ("owner", "mode"), [(1, 0o700), (1, 0o1777), (0, 0o720), (0, 0o702), (0, 0o777), (None, 0o775)]
)
@pytest.mark.parametrize("place", ["/home/me", "/home/me/.cache", "/home/me/.cache/mlx-port"])
def test_folders_of_others_are_not(states: dict[Path, Any], owner: int | None, mode: int, place: str) -> None:
    states[Path(place)] = (owner, FOLDER | mode)
    with pytest.raises(PermissionError, match=f"^{place}: another user can change it"):
        check_folder(Path("/home/me/.cache/mlx-port"))
    states[Path(place)] = (0, FOLDER | 0o755)
    states[Path("/home")] = (1, FOLDER | 0o777)  # above the home folder
    check_folder(Path("/home/me/.cache/mlx-port"))


@pytest.mark.parametrize("place", ["/", "/data", "/data/cache"])
def test_outside_the_home_folder_the_root_is_the_last(states: dict[Path, Any], place: str) -> None:
    check_folder(Path("/data/cache"))
    states[Path(place)] = (1, FOLDER | 0o755)
    with pytest.raises(PermissionError, match=f"^{place}: "):
        check_folder(Path("/data/cache"))


def test_a_link_is_no_folder(states: dict[Path, Any]) -> None:
    states[Path("/home/me/.cache")] = (0, stat.S_IFLNK | 0o777)
    with pytest.raises(PermissionError):
        check_folder(Path("/home/me/.cache"))


@pytest.mark.parametrize(
    ("owner", "mode", "private_"),
    [
        (0, FILE | 0o644, True),
        (None, FILE | 0o755, True),
        (1, FILE | 0o644, False),
        (0, FILE | 0o664, False),
        (0, FILE | 0o646, False),
        (0, FILE | 0o1666, False),  # sticky means something for folders only
        (0, stat.S_IFIFO | 0o600, False),
        (0, stat.S_IFLNK | 0o600, False),
    ],
)
def test_files(states: dict[Path, Any], owner: int | None, mode: int, private_: bool) -> None:
    states[Path("/home/me/a")] = (owner, mode)
    if private_:
        check_file(Path("/home/me/a"))
        return
    with pytest.raises(PermissionError, match=r"^/home/me/a: another user can change it, so no library"):
        check_file(Path("/home/me/a"))

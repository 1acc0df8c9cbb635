"""The embedded voice's converted copy: written once to the cache, or to a temporary folder if that fails."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import converters.convert
from converters.files.destination import appearing, check_destination
from mlx_port import DiaPipeline, api, generate, load, stored_voice
from tests.tiny.record import record_again
from tts_core.errors import ResourceError, UsageError
from tts_core.voice.embedded import cache_folder, fingerprint

Edit = Callable[[Path], object]


def write_copy(folder: Path, text: str) -> None:
    """Write the result of a conversion, with one file only."""
    (folder / "config.json").write_text(text)
    (folder / "conversion.json").write_text(
        json.dumps({"written": {"config.json": {"bytes": 0, "sha256": ""}}})
    )
    record_again(folder)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder of caches, which is not there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "new/cache"))
    return tmp_path / "new/cache"


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Folders of copies; the conversion only writes a config.json."""
    made: list[Path] = []

    def convert(folder: Path) -> None:
        folder.mkdir()
        write_copy(folder, "{}")
        made.append(folder)

    monkeypatch.setattr(stored_voice, "_convert_voice", convert)
    return made


def test_first_use_converts_and_the_second_does_not(conversions: list[Path], cache: Path) -> None:
    first = stored_voice.converted_voice()
    assert first.is_relative_to(cache / "mlx-port")
    assert fingerprint() in first.name
    assert conversions == [first]
    assert stored_voice.converted_voice() == first
    assert conversions == [first]


def test_another_voice_or_format_is_another_folder(
    conversions: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = stored_voice.converted_voice()
    monkeypatch.setattr(stored_voice, "fingerprint", lambda: "0" * 16)
    second = stored_voice.converted_voice()
    monkeypatch.setattr(stored_voice, "FORMAT_VERSION", 1)  # an older version's copy must not be loaded
    assert len({first, second, stored_voice.converted_voice()}) == 3
    assert len(conversions) == 3


def full(place: Path, patch: pytest.MonkeyPatch) -> None:
    """The disk has no room."""
    write = stored_voice._convert_voice

    def convert(folder: Path) -> None:
        if folder.is_relative_to(place):
            raise ResourceError("DST: the disk is full")
        write(folder)

    patch.setattr(stored_voice, "_convert_voice", convert)


def no_access(place: Path, patch: pytest.MonkeyPatch) -> None:
    place.mkdir(parents=True)  # root may write anywhere, so the check is patched
    patch.setattr(stored_voice.os, "access", lambda path, mode: not Path(path).is_relative_to(place))


@pytest.mark.parametrize("spoil", [full, no_access, lambda place, _: place.parent.write_text("")])
def test_a_cache_that_cannot_be_written_is_passed_over(
    spoil: Any, conversions: list[Path], cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(cache, monkeypatch)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    assert [stored_voice.converted_voice()] == conversions
    assert conversions[0].is_relative_to(tmp_path / "tmp")
    monkeypatch.setattr(tempfile, "tempdir", str(cache))
    with pytest.raises(
        ResourceError, match="no writable folder with room for its converted copy; set XDG_CACHE_HOME to one"
    ):
        stored_voice.converted_voice()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Callable[[Edit], None]:
    """Conversions that appear like real ones, with one file only, after the given action."""

    def install(meanwhile: Edit) -> None:
        def convert(published: object, folder: Path, *, dtype: str) -> None:
            check_destination(folder, force=False)
            with appearing(folder) as work:
                write_copy(work, "new")
                meanwhile(folder)

        monkeypatch.setattr(converters.convert, "convert", convert)

    return install


def a_folder(folder: Path) -> None:
    (folder / "codec").mkdir(parents=True)
    (folder / "conversion.json").write_text("{}")


@pytest.mark.parametrize("left", [a_folder, Path.mkdir, Path.touch, lambda place: place.symlink_to("no")])
def test_what_is_left_of_a_copy_is_made_again(left: Edit, quick: Callable[[Edit], None]) -> None:
    quick(lambda folder: None)
    folder = stored_voice.voice_folders()[0]
    folder.parent.mkdir(parents=True)
    left(folder)
    assert stored_voice.converted_voice() == folder
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "conversion.json"]
    assert list(folder.parent.iterdir()) == [folder]


def test_a_copy_that_changed_is_made_again(quick: Callable[[Edit], None]) -> None:
    """Its hash is compared: the change keeps size and time."""
    quick(lambda folder: None)
    file = stored_voice.converted_voice() / "config.json"
    status = file.stat()
    file.write_text("old")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert stored_voice.converted_voice() == file.parent
    assert file.read_text() == "new"
    assert list(file.parents[1].iterdir()) == [file.parent]


@pytest.mark.parametrize("value", ["./cache", "~/cache", "", None])
def test_a_cache_that_is_not_absolute_is_ignored(
    conversions: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_CACHE_HOME")
    if value is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    assert cache_folder() == tmp_path / "home/.cache/mlx-port"
    assert stored_voice.converted_voice().parent == cache_folder()


def test_the_cache_is_for_the_user_only(conversions: list[Path]) -> None:
    before = os.umask(0)
    try:
        folder = stored_voice.converted_voice()
    finally:
        os.umask(before)
    assert {place.stat().st_mode & 0o777 for place in folder.parents[:2]} == {0o700}


def test_a_copy_that_another_process_makes_is_taken(
    quick: Callable[[Edit], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While our copy is written, or while the remains of an older one are removed."""

    def other(folder: Path) -> None:
        folder.mkdir()
        write_copy(folder, "the other's")

    quick(other)
    folder = stored_voice.converted_voice()
    assert (folder / "config.json").read_text() == "the other's"
    (folder / "config.json").unlink()
    rename = os.rename

    def late(source: Path, target: Path) -> None:
        monkeypatch.setattr(os, "rename", rename)
        write_copy(folder, "the other's, late")
        rename(source, target)

    monkeypatch.setattr(os, "rename", late)
    assert stored_voice.converted_voice() == folder
    assert (folder / "config.json").read_text() == "the other's, late"
    (folder / "config.json").unlink()

    def removed(source: Path, target: Path) -> None:
        monkeypatch.setattr(os, "rename", rename)
        shutil.rmtree(source)
        rename(source, target)

    monkeypatch.setattr(os, "rename", removed)
    quick(lambda folder: None)
    assert stored_voice.converted_voice() == folder
    assert (folder / "config.json").read_text() == "new"
    monkeypatch.setattr(os, "rename", lambda *_: pytest.fail("a complete copy was moved"))
    stored_voice._convert_voice(folder)  # completed after the check
    assert list(folder.parent.iterdir()) == [folder]


def test_a_copy_that_cannot_be_made_is_an_error(quick: Callable[[Edit], None], cache: Path) -> None:
    def refuse(folder: Path) -> None:
        raise PermissionError(13, "Permission denied")

    quick(refuse)
    with pytest.raises(UsageError, match="cannot be written"):
        stored_voice.converted_voice()
    assert list((cache / "mlx-port").iterdir()) == []


AT_ONCE = """
import sys, time
from contextlib import contextmanager
from pathlib import Path
import converters.convert as code
from mlx_port import api, stored_voice

here, own, other = map(Path, sys.argv[1:])
original = code.appearing

@contextmanager
def together(destination, **given):
    with original(destination, **given) as work:
        yield work
        (here / own).touch()
        while not (here / other).exists():
            time.sleep(0.001)

code.appearing = together
stored_voice.os.getpid = lambda: 1  # as in two containers that share a home
print(api.embedded_voice().sample_rate)
"""


def copies(cache: Path) -> list[Path]:
    """Copies of the voice, whole or not; the cache may also hold a BLAS (mlx_port/runtime/blas.py)."""
    return [path for path in (cache / "mlx-port").iterdir() if not path.name.startswith("blas-")]


def test_two_processes_at_the_same_moment(tmp_path: Path, cache: Path) -> None:
    """Both have written everything when the first one moves its copy into place."""
    names = ["one", "other"]
    both = [
        subprocess.Popen(
            [sys.executable, "-c", AT_ONCE, str(tmp_path), *order],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for order in (names, names[::-1])
    ]
    for process in both:
        assert process.communicate(timeout=600) == ("16000\n", "")
        assert process.returncode == 0
    [folder] = copies(cache)
    assert DiaPipeline.load(folder).config == api.embedded_voice().config


def test_the_copy_is_complete(cache: Path) -> None:
    """After the real conversion the voice speaks from the copy, and the loaded voice is kept."""
    api.embedded_voice.cache_clear()
    result = generate("[S1] Hi.", seed=3, max_frames=6)
    [folder] = copies(cache)
    assert {"README.md", "codec", "config.json", "conversion.json"} <= {
        path.name for path in folder.iterdir()
    }
    again = load(folder).generate("[S1] Hi.", seed=3, max_frames=6)
    np.testing.assert_array_equal(again.codes, result.codes)
    np.testing.assert_array_equal(again.audio, result.audio)
    by_path = generate("[S1] Hi.", folder, seed=3, max_frames=6)
    np.testing.assert_array_equal(by_path.codes, result.codes)
    assert api.embedded_voice() is api.embedded_voice()

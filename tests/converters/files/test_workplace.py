"""Workplaces of conversions: nobody else's is touched, and what a dead one left goes."""

import fcntl
import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from converters.files import workplace as module
from converters.files.workplace import clear_leftovers, others_in, workplace
from tests.converters.files.records import record
from tests.converters.folders import left_in
from tts_core.files.record import RECORD

ROOT = Path(__file__).parents[3]


def dead(parent: Path, *, new: bool = True, old: bool = False, destination: str = "out") -> Path:
    """The workplace of a conversion that was killed."""
    folder = parent / ".mlx-port-abcd_123"
    folder.mkdir()
    owner = {"kernel": module._kernel(), "destination": os.fsencode(destination).hex()}
    (folder / "owner.json").write_text(json.dumps(owner))
    for place in ["new"] * new + ["old"] * old:
        (folder / place).mkdir()
        record(folder / place, "config.json", "model.safetensors", "codec/config.json")
    return folder


def test_a_workplace_is_beside_the_destination_and_goes(tmp_path):
    with workplace(tmp_path / "out") as place:
        (place.new / "x").write_text("x")
        assert place.new.parent.parent == tmp_path
        assert not place.old.exists()
    assert left_in(tmp_path) == []


def test_two_of_one_destination_do_not_meet(tmp_path):
    with workplace(tmp_path / "out") as one, workplace(tmp_path / "out") as other:
        assert one.new != other.new
        clear_leftovers(tmp_path)
        assert one.new.is_dir()
        assert other.new.is_dir()


def test_the_workplace_of_another_process_is_left_alone(tmp_path):
    """Also one whose process has the same number as this one, as in another container."""
    code = (
        "import os, sys; os.getpid = lambda: 1\n"
        "from pathlib import Path; from converters.files.workplace import workplace\n"
        "with workplace(Path(sys.argv[1])) as place:\n"
        "    (place.new / 'x').touch(); print('working', flush=True); sys.stdin.read()"
    )
    command, pipe = [sys.executable, "-c", code, tmp_path / "out"], subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"working\n"
        before = left_in(tmp_path)
        clear_leftovers(tmp_path)
        assert left_in(tmp_path) == before
        process.kill()
    clear_leftovers(tmp_path)
    assert left_in(tmp_path) == []


@pytest.mark.parametrize("there", [False, True])
def test_a_dead_conversion_is_cleared_with_a_line(tmp_path, caplog, there):
    dead(tmp_path)
    if there:
        (tmp_path / "out").mkdir()
    with caplog.at_level(logging.WARNING):
        clear_leftovers(tmp_path)
    assert caplog.messages == [f"{tmp_path}: removed 0.0 MB that an interrupted conversion left"]
    assert left_in(tmp_path) == ["out"] * there


def test_one_that_died_between_two_renames_gives_the_old_folder_back(tmp_path, caplog):
    dead(tmp_path, old=True, destination=os.fsdecode(b"o\xffut"))
    clear_leftovers(tmp_path)
    restored = tmp_path / os.fsdecode(b"o\xffut")
    shown = str(restored).replace("\udcff", r"\xff")
    assert caplog.messages[0] == f"{shown}: put back; the conversion that replaced it was interrupted"
    assert left_in(restored) == ["codec", "config.json", "conversion.json", "model.safetensors"]
    assert left_in(tmp_path) == [restored.name]


def test_one_that_died_after_both_renames_removes_the_old_folder(tmp_path):
    dead(tmp_path, new=False, old=True)
    (tmp_path / "out").mkdir()
    clear_leftovers(tmp_path)
    assert left_in(tmp_path) == ["out"]


def test_files_that_no_conversion_wrote_are_kept(tmp_path, caplog):
    """They came into the old folder after it was checked."""
    folder = dead(tmp_path, old=True)
    (folder / "old/codec/notes.txt").write_text("dear")
    (folder / "old/.DS_Store").write_text("")
    (tmp_path / "out").mkdir()
    clear_leftovers(tmp_path)
    assert caplog.messages == [f"{folder / 'old'}: kept, since it contains files that no conversion wrote"]
    assert [str(path.relative_to(folder)) for path in sorted((folder / "old").rglob("*"))] == [
        "old/codec",
        "old/codec/notes.txt",
    ]


@pytest.mark.parametrize("content", ["", "{}", '{"written": {"../x": {"bytes": 1, "sha256": "0"}}}'])
def test_nothing_is_removed_from_an_old_folder_without_a_record(tmp_path, content):
    folder = dead(tmp_path, new=False, old=True)
    (folder / "old" / RECORD).write_text(content)
    (tmp_path / "out").mkdir()
    clear_leftovers(tmp_path)
    assert (folder / "old/model.safetensors").exists()


@pytest.mark.parametrize("destination", ["", ".", "..", "../elsewhere", "a/b", "x\0"])
def test_an_owner_that_names_no_neighbour_restores_nothing(tmp_path, destination):
    parent = tmp_path / "in"
    (parent / "a").mkdir(parents=True)
    folder = dead(parent, old=True, destination=destination)
    clear_leftovers(parent)
    assert not folder.exists() or (folder / "old").is_dir()
    assert left_in(parent) in (["a"], [folder.name, "a"])
    assert (left_in(tmp_path), left_in(parent / "a")) == (["in"], [])


NOT_OURS = (".mlx-port-abc", ".mlx-port-abcdefghi", "mlx-port-abcdefgh", ".mlx-port-ABCDEFGH")


@pytest.mark.parametrize("name", [*NOT_OURS, ".out.abcd1234.part"])
def test_other_names_are_not_ours(tmp_path, name):
    (tmp_path / name / "new").mkdir(parents=True)
    clear_leftovers(tmp_path)
    assert (tmp_path / name / "new").is_dir()


@pytest.mark.parametrize("left", [4, 3, 2, 1, 0])
def test_one_that_died_while_it_removed_the_old_folder(tmp_path, monkeypatch, left):
    """The record of the files goes last."""
    folder = dead(tmp_path, new=False, old=True)
    (tmp_path / "out").mkdir()
    unlink, count = Path.unlink, iter(range(4 - left, -1, -1))

    def dying(path, **given):
        if path.is_relative_to(folder / "old") and next(count) == 0:
            raise OSError(5, "Input/output error")  # as far as a dead process got
        unlink(path, **given)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", dying)
        patch.setattr(os, "rmdir", lambda _: None)
        clear_leftovers(tmp_path)
    assert sum(path.is_file() for path in (folder / "old").rglob("*")) == left
    clear_leftovers(tmp_path)
    assert left_in(tmp_path) == ["out"]


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "home/new").mkdir(parents=True)
    (tmp_path / ".mlx-port-abcdefgh").symlink_to("home")
    clear_leftovers(tmp_path)
    assert (tmp_path / "home/new").is_dir()


def test_the_workplace_of_another_machine_is_left_for_a_day(tmp_path, monkeypatch):
    """Its locks may not be seen here."""
    folder = dead(tmp_path)
    monkeypatch.setattr(module, "_kernel", lambda: "another")
    clear_leftovers(tmp_path)
    assert folder.is_dir()
    yesterday = time.time() - 25 * 3600
    os.utime(folder, (yesterday, yesterday))
    clear_leftovers(tmp_path)
    assert left_in(tmp_path) == []


def test_a_disk_without_locks(tmp_path, monkeypatch):
    """Work goes on there, and nothing is taken for a leftover."""

    def flock(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", flock)
    with workplace(tmp_path / "out") as place:
        clear_leftovers(tmp_path)
        assert place.new.is_dir()
    assert left_in(tmp_path) == []


def test_a_new_folder_that_is_taken_for_a_leftover_is_made_again(tmp_path, monkeypatch):
    mkdtemp, made = module.tempfile.mkdtemp, []

    def taken(**given):
        made.append(mkdtemp(**given))
        if len(made) == 1:
            clear_leftovers(tmp_path)  # by another process, before this one could lock it
            assert left_in(tmp_path) == []
        return made[-1]

    monkeypatch.setattr(module.tempfile, "mkdtemp", taken)
    with workplace(tmp_path / "out") as place:
        assert str(place.new.parent) == made[1]
    assert left_in(tmp_path) == []


def test_others_in_a_converted_folder(tmp_path):
    record(tmp_path, "config.json", "codec/model.safetensors")
    assert others_in(tmp_path) == []
    (tmp_path / "codec/.DS_Store").touch()
    (tmp_path / "empty").mkdir()
    assert others_in(tmp_path) == []
    (tmp_path / "codec/notes.txt").touch()
    (tmp_path / "link").symlink_to("codec")
    (tmp_path / "config.json.bak").touch()
    assert others_in(tmp_path) == ["codec/notes.txt", "config.json.bak", "link"]

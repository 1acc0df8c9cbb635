"""The destination: what may be replaced, and the order in which a folder reaches the disk and appears."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from converters.files import destination as module
from converters.files.destination import appearing, check_destination, clear_leftovers, others_in
from tests.converters.files.records import record
from tests.converters.folders import left_in
from tts_core.errors import UsageError
from tts_core.files.record import RECORD


def refusal(folder: Path) -> str:
    with pytest.raises(UsageError, match=r"^DST: ") as caught:
        check_destination(folder, force=True)
    return str(caught.value)


def test_force_refuses_a_folder_with_files_that_no_conversion_wrote(tmp_path):
    out = tmp_path / "out"
    record(out, "config.json", "codec/model.safetensors")
    check_destination(out, force=True)
    for name in ("a.txt", "b.txt", "codec/c.txt", "d.txt"):
        (out / name).touch()
    assert "contains a.txt, b.txt, codec/c.txt and 1 more, which no conversion wrote" in refusal(out)


def test_force_refuses_a_link_to_a_converted_folder(tmp_path):
    record(tmp_path / "model", "config.json")
    (tmp_path / "out").symlink_to("model")
    assert "out is not a folder, --force does not replace it" in refusal(tmp_path / "out")


def test_force_refuses_the_folder_of_a_source_however_it_is_written(tmp_path, monkeypatch):
    record(tmp_path / "out", "config.json", "model.safetensors")
    (tmp_path / "link").symlink_to("out")
    monkeypatch.chdir(tmp_path)
    for source in (Path("out"), tmp_path / "out", Path("link"), Path("out/../out")):
        with pytest.raises(UsageError, match=r"out contains model.safetensors, which is converted; give ano"):
            check_destination(Path("out"), force=True, sources=[source / "model.safetensors"])


@pytest.mark.parametrize(
    ("content", "said"),
    [("", "not readable as JSON"), ("[]", "not a JSON object"), ("{}", "does not list the files")],
)
def test_force_refuses_a_folder_whose_record_cannot_be_read(tmp_path, content, said):
    (tmp_path / RECORD).write_text(content)
    assert said in refusal(tmp_path)
    assert "--force does not replace" in refusal(tmp_path)


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


def test_what_comes_while_a_folder_is_replaced_is_kept(tmp_path):
    out = tmp_path / "out"
    record(out, "config.json")
    with (
        pytest.raises(UsageError, match=r"contains notes\.txt, which no conversion wrote"),
        appearing(out, replace=True),
    ):
        (out / "notes.txt").write_text("dear")
    assert left_in(out) == ["config.json", "conversion.json", "notes.txt"]
    assert left_in(tmp_path) == ["out"]


def killed(destination: Path, *, old: bool = False) -> None:
    """Leave what a killed conversion leaves."""
    for name in ["new"] + [f"old/{destination.name}"] * old:
        record(destination.parent / ".mlx-port-abcd_123" / name, "config.json")


@pytest.mark.parametrize("name", ["out", ".out", "x" * 255, os.fsdecode(b"o\xffut")])
@pytest.mark.parametrize(("old", "there"), [(False, False), (False, True), (True, False), (True, True)])
def test_what_a_killed_conversion_left_goes(tmp_path, name, old, there):
    """One killed between two renames gives the older folder back."""
    out = tmp_path / name
    killed(out, old=old)
    if there:
        out.mkdir()
    clear_leftovers(tmp_path)
    assert left_in(tmp_path) == [name] * (old or there)
    if out.exists():
        assert left_in(out) == (["config.json", RECORD] if old and not there else [])


NOT_OURS = (".mlx-port-abc", ".mlx-port-abcdefghi", "mlx-port-abcdefgh", ".out.abcd1234.part")


@pytest.mark.parametrize("name", NOT_OURS)
def test_other_folders_are_not_leftovers(tmp_path, name):
    (tmp_path / name / "new").mkdir(parents=True)
    (tmp_path / ".mlx-port-abcd_123").symlink_to(name)
    clear_leftovers(tmp_path)
    assert (tmp_path / name / "new").is_dir()


def test_the_folder_of_another_process_is_left_alone(tmp_path):
    """Until that process ends, however."""
    code = (
        "import sys; from pathlib import Path; from converters.files.destination import appearing\n"
        "with appearing(Path(sys.argv[1])) as new:\n"
        "    (new / 'x').touch(); print('working', flush=True); sys.stdin.read()"
    )
    command, pipe = [sys.executable, "-c", code, tmp_path / "out"], subprocess.PIPE
    with subprocess.Popen(command, cwd=Path(__file__).parents[3], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"working\n"
        before = left_in(tmp_path)
        clear_leftovers(tmp_path)
        assert left_in(tmp_path) == before
        process.kill()
    clear_leftovers(tmp_path)
    assert left_in(tmp_path) == []


def test_the_parent_may_be_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk")
    killed(tmp_path / "link/out", old=True)
    clear_leftovers(tmp_path / "link")
    with appearing(tmp_path / "link/out", replace=True) as new:
        record(new, "other.json")
    assert left_in(tmp_path / "disk/out") == ["conversion.json", "other.json"]


def test_a_disk_without_locks(tmp_path, monkeypatch):
    """Work goes on there, and nothing is taken for a leftover."""

    def flock(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", flock)
    with appearing(tmp_path / "out") as new:
        clear_leftovers(tmp_path)
        record(new, "config.json")
    assert left_in(tmp_path) == ["out"]


def test_a_fault_after_the_old_folder_was_moved_brings_it_back(tmp_path, monkeypatch):
    out, rename = tmp_path / "out", os.rename
    record(out, "config.json")

    def failing(source, target):
        if Path(target) == out and Path(source).name == "new":
            raise OSError(5, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)
    with (
        pytest.raises(OSError, match=r"failed \(Input/output error\); nothing was left there"),
        appearing(out, replace=True) as new,
    ):
        record(new, "other.json")
    assert left_in(out) == ["config.json", "conversion.json"]
    assert left_in(tmp_path) == ["out"]


@pytest.mark.parametrize("replace", [False, True])
def test_everything_is_on_the_disk_before_the_folder_appears(tmp_path, monkeypatch, replace):
    out = tmp_path / "deep/out"
    if replace:
        record(out, "config.json")
    done: list[str] = []
    handles: list[int] = []
    sync, rename = module.sync, os.rename

    def synced(path):
        parts = [part for part in path.relative_to(tmp_path).parts if ".mlx" not in part]
        done.append(f"sync {'/'.join(parts)}")
        sync(path)

    def renamed(source, target):
        done.append(f"rename {Path(source).name}")
        rename(source, target)

    monkeypatch.setattr(module, "sync", synced)
    monkeypatch.setattr(module.os, "fsync", handles.append)
    monkeypatch.setattr(module.os, "rename", renamed)
    with appearing(out, replace=replace) as new:
        record(new, "config.json", "codec/config.json")
    inside = {"new", "new/config.json", f"new/{RECORD}", "new/codec", "new/codec/config.json"}
    assert {line.removeprefix("sync deep/") for line in done[: len(inside)]} == inside
    assert done[len(inside) - 1] == "sync deep/new"
    assert len(handles) == len(inside) + 1
    assert done[len(inside) :] == ["rename out"] * replace + ["rename new", "sync deep"]

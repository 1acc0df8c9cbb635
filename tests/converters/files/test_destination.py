"""The destination: what may be replaced, and the order in which a folder reaches the disk and appears."""

import os
from pathlib import Path

import pytest

from converters.files import destination as module
from converters.files.destination import appearing, check_destination
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


def test_what_comes_while_a_folder_is_replaced_is_kept(tmp_path, caplog):
    out = tmp_path / "out"
    record(out, "config.json")
    with appearing(out, replace=True) as new:
        record(new, "config.json", "more.json")
        (out / "notes.txt").write_text("dear")
    assert left_in(out) == ["config.json", "conversion.json", "more.json"]
    [name] = [name for name in left_in(tmp_path) if name != "out"]
    assert (tmp_path / name / "old/notes.txt").read_text() == "dear"
    assert caplog.messages == [
        f"{tmp_path / name}/old: kept, since it contains files that no conversion wrote"
    ]


def test_leftovers_of_earlier_versions_do_not_block_force(tmp_path):
    out = tmp_path / "out"
    record(out, "config.json")
    (tmp_path / ".out.old").mkdir()
    (tmp_path / f".out.{os.getpid()}.old").mkdir()
    with appearing(out, replace=True) as new:
        record(new, "other.json")
    assert left_in(out) == ["conversion.json", "other.json"]


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

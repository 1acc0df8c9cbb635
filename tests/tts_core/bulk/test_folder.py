"""The output folder: locks, settings, and runs that were killed at every byte."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Calls
from tts_core.bulk import folder
from tts_core.bulk.folder import OutputFolder
from tts_core.bulk.outcome import Outcome
from tts_core.errors import CheckpointError, UsageError

KEYS = {f"k{number}": number for number in range(5)}


def outcome(number: int, **changes: Any) -> Outcome:
    fields = {"id": f"row{number}", "duration": 1.5}
    given = {"sound": bytes([number]) * 700, "fields": fields, **changes}
    return Outcome(number, f"k{number}", f"row{number}", **given)


def opened(folder: Path, settings: Mapping[str, Any] | None = None, **changes: Any) -> OutputFolder:
    return OutputFolder(folder, settings or {"model": "m"}, suffix=".flac", **changes)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_files_and_manifest(tmp_path: Path) -> None:
    with opened(tmp_path, captions="srt") as output:
        output.write(outcome(2, captions="1\n"))
        output.write(outcome(0))
        output.write(outcome(1, error="text: empty"))
        assert output.finish(KEYS, {1: "line 3"}) == 2
    found = lines(tmp_path / "manifest.jsonl")
    assert [line["audio_filepath"] for line in found] == ["audio/row0.flac", "audio/row2.flac"]
    assert found[1] == {"audio_filepath": "audio/row2.flac", "id": "row2", "duration": 1.5, "key": "k2"}
    assert (tmp_path / found[1]["audio_filepath"]).read_bytes() == b"\2" * 700
    assert (tmp_path / "captions/row2.srt").read_text() == "1\n"
    assert lines(tmp_path / "errors.jsonl") == [
        {"id": "row1", "number": 1, "place": "line 3", "error": "text: empty"}
    ]
    with opened(tmp_path, captions="srt") as output:
        assert output.done == {"k0", "k2"}
        output.write(outcome(1))
        assert output.finish(KEYS) == 3
    assert not (tmp_path / "errors.jsonl").exists()
    assert not [path for path in tmp_path.rglob(".part-*")]


def test_rows_that_left_the_input_leave_the_manifest(tmp_path: Path) -> None:
    with opened(tmp_path) as output:
        output.write(outcome(0))
        output.write(outcome(1))
        assert output.finish({"k1": 7}) == 1


@pytest.mark.parametrize("cut", [1, 10, 40])
def test_a_line_that_a_kill_broke_off_is_no_line(tmp_path: Path, cut: int) -> None:
    with opened(tmp_path) as output:
        for number in range(3):
            output.write(outcome(number))
    work = tmp_path / ".work/manifest-0-of-1.jsonl"
    work.write_bytes(work.read_bytes()[:-cut])
    with opened(tmp_path) as output:
        assert output.done == {"k0", "k1"}
        output.write(outcome(2))
        assert output.finish(KEYS) == 3
    assert len(lines(work)) == 3


@pytest.mark.parametrize("refused", ["_replace", "append"])
def test_a_row_that_the_disk_refuses_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """Sound or line is refused; rows after it stay, in this run and the next."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with opened(tmp_path) as output:
        output.write(outcome(0))
        with monkeypatch.context() as patch:
            patch.setattr(folder, refused, full)
            with pytest.raises(OSError, match="No space"):
                output.write(outcome(1))
        output.write(outcome(2))
        assert output.finish(KEYS) == 2
    with opened(tmp_path) as output:
        assert output.done == {"k0", "k2"}
        output.write(outcome(1))
        assert output.finish(KEYS) == 3


def test_resuming_reads_the_record_once(tmp_path: Path, calls: Calls) -> None:
    calls.watch(OutputFolder, "_recorded")
    with opened(tmp_path) as output:
        for number in range(3):
            output.write(outcome(number))
        output.finish(KEYS)
    assert calls["_recorded"] == 2, "at the start, and for the manifest"
    with opened(tmp_path) as output:
        for number in range(3, 5):
            output.write(outcome(number))
        assert calls["_recorded"] == 3


def test_another_run_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path):
        with pytest.raises(UsageError, match="another run"):
            opened(tmp_path)
        with pytest.raises(UsageError, match="another run"):
            opened(tmp_path, part=1, parts=2)
    with opened(tmp_path, part=0, parts=2), opened(tmp_path, part=1, parts=2):
        with pytest.raises(UsageError, match="another run"):
            opened(tmp_path, part=1, parts=2)
        with pytest.raises(UsageError, match="another run"):
            opened(tmp_path, part=2, parts=3)
        with pytest.raises(UsageError, match="another run"):
            opened(tmp_path)
    opened(tmp_path).__exit__(None, None, None)


def test_parts_make_one_manifest(tmp_path: Path) -> None:
    for part in (0, 1):
        with opened(tmp_path, part=part, parts=2) as output:
            for number in range(part, 5, 2):
                output.write(outcome(number))
            output.finish(KEYS)
    assert [line["id"] for line in lines(tmp_path / "manifest.jsonl")] == [f"row{n}" for n in range(5)]


def test_other_settings_are_refused(tmp_path: Path) -> None:
    opened(tmp_path, {"model": "m", "captions": None}).__exit__(None, None, None)
    with pytest.raises(UsageError, match=r"model 'm', now 'n'; dtype None, now 'float16'"):
        opened(tmp_path, {"model": "n", "captions": None, "dtype": "float16"})
    opened(tmp_path, {"model": "m", "tar": None}).__exit__(None, None, None)  # as earlier versions wrote it


def test_a_damaged_manifest_is_named(tmp_path: Path) -> None:
    opened(tmp_path).__exit__(None, None, None)
    (tmp_path / ".work/manifest-0-of-1.jsonl").write_text("{}}\n")
    with pytest.raises(CheckpointError, match="damaged"):
        opened(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        ".work",
        "audio",
        "captions",
        ".work/lock",
        ".work/lock-0",
        ".work/settings.json",
        ".work/manifest-0-of-1.jsonl",
    ],
)
@pytest.mark.parametrize("is_there", [True, False])
def test_links_inside_are_not_followed(tmp_path: Path, name: str, is_there: bool) -> None:
    """Nothing beyond them is written, cut or made."""
    place, target = tmp_path / "out" / name, tmp_path / "elsewhere"
    place.parent.mkdir(parents=True)
    if is_there:
        target.mkdir() if "." not in place.name[1:] and "lock" not in name else target.write_text("mine")
    place.symlink_to(target)
    with pytest.raises(UsageError, match=r"^--out: .* is a symbolic link; remove it"):
        opened(tmp_path / "out", captions="srt")
    assert target.exists() == is_there
    if target.is_file():
        assert target.read_text() == "mine"
    elif is_there:
        assert list(target.iterdir()) == []


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    with opened(tmp_path / "out") as output:
        output.write(outcome(0))
        output.finish(KEYS)
    assert (tmp_path / "disk/audio/row0.flac").exists()


@pytest.mark.parametrize("name", ["audio/row0.flac", "captions/row0.srt", "manifest.jsonl", "errors.jsonl"])
def test_files_replace_links(tmp_path: Path, name: str) -> None:
    """What they lead to stays."""
    (tmp_path / "mine").write_text("mine")
    place = tmp_path / "out" / name
    place.parent.mkdir(parents=True)
    place.symlink_to(tmp_path / "mine")
    with opened(tmp_path / "out", captions="srt") as output:
        output.write(outcome(0, captions="1\n"))
        output.write(outcome(1, error="text: empty"))
        output.finish(KEYS)
    assert (tmp_path / "mine").read_text() == "mine"
    assert not place.is_symlink()

"""The output folder: locks, settings, and runs that were killed at every byte."""

import json
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Calls
from tts_core.bulk import folder, tar
from tts_core.bulk.folder import OutputFolder
from tts_core.bulk.outcome import Outcome
from tts_core.bulk.tar import TarShard
from tts_core.errors import CheckpointError, UsageError
from tts_core.files import whole

KEYS = {f"k{number}": number for number in range(5)}


def outcome(number: int, **changes: Any) -> Outcome:
    fields = {"id": f"row{number}", "duration": 1.5}
    given = {"sound": bytes([number]) * 700, "fields": fields, **changes}
    return Outcome(number, f"k{number}", f"row{number}", **given)


def opened(folder: Path, settings: Mapping[str, Any] | None = None, **changes: Any) -> OutputFolder:
    return OutputFolder(folder, settings or {"model": "m"}, suffix=".flac", **changes)


def read_shard(path: Path) -> list[str]:
    """Names of the files in a shard."""
    with tarfile.open(path) as archive:
        return archive.getnames()


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


def test_shards_are_whole_wherever_a_kill_came(tmp_path: Path) -> None:
    """Cut the shard, and the manifest behind it, at many places; the second run makes the same shard."""
    with opened(tmp_path / "whole", per_shard=3) as output:
        for number in range(4):
            output.write(outcome(number))
    wanted = (tmp_path / "whole/audio/shard-000000.tar").read_bytes()
    for length in range(0, len(wanted), 97):
        folder = tmp_path / f"cut{length}"
        with opened(folder, per_shard=3) as output:
            output.write(outcome(0))
        end = (folder / "audio/shard-000000.tar").stat().st_size - 1024  # entries on record
        (folder / "audio/shard-000000.tar").write_bytes(wanted[: max(length, end)])
        with opened(folder, per_shard=3) as output:
            for number in (1, 2, 3):
                output.write(outcome(number))
        assert (folder / "audio/shard-000000.tar").read_bytes() == wanted
    names = ["00000000.flac", "00000000.json", "00000001.flac"]
    assert [*read_shard(tmp_path / "whole/audio/shard-000000.tar")][:3] == names
    assert [*read_shard(tmp_path / "whole/audio/shard-000001.tar")] == ["00000003.flac", "00000003.json"]


def test_a_shard_is_a_tar_file_after_every_entry(tmp_path: Path) -> None:
    shard = TarShard(tmp_path / "a.tar", [])
    for number in range(3):
        shard.add(f"{number}.bin", b"x" * 511 * number)
        with tarfile.open(tmp_path / "a.tar") as archive:
            assert [member.size for member in archive] == [511 * one for one in range(number + 1)]


def test_many_shards_hold_no_files_open(tmp_path: Path) -> None:
    with opened(tmp_path, per_shard=1) as output:
        before = len(os.listdir("/dev/fd"))
        for number in range(40):
            output.write(outcome(number))
        assert len(os.listdir("/dev/fd")) == before
        assert output.finish({f"k{number}": number for number in range(40)}) == 40
    assert len(list((tmp_path / "audio").glob("*.tar"))) == 40


@pytest.mark.parametrize("refused", range(3))
def test_a_row_that_the_disk_refuses_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    """Sound, its fields or its line is refused; rows after it stay, in this run and the next."""
    asked, write = [0], whole.append

    def full(path: Path, content: bytes, at: int) -> None:
        asked[0] += 1
        if asked[0] == 3 + refused + 1:
            raise OSError(28, "No space left on device")
        write(path, content, at)

    monkeypatch.setattr(tar, "append", full)
    monkeypatch.setattr(folder, "append", full)
    with opened(tmp_path, per_shard=9) as output:
        output.write(outcome(0))
        with pytest.raises(OSError, match="No space"):
            output.write(outcome(1))
        output.write(outcome(2))
        assert output.finish(KEYS) == 2
    shard = tmp_path / "audio/shard-000000.tar"
    assert [*read_shard(shard)] == ["00000000.flac", "00000000.json", "00000002.flac", "00000002.json"]
    with opened(tmp_path, per_shard=9) as output:
        assert output.done == {"k0", "k2"}
        output.write(outcome(1))
        assert output.finish(KEYS) == 3
    assert [*read_shard(shard)][2:] == ["00000002.flac", "00000002.json", "00000001.flac", "00000001.json"]


def test_resuming_reads_the_record_once(tmp_path: Path, calls: Calls) -> None:
    calls.watch(OutputFolder, "_recorded")
    with opened(tmp_path, per_shard=1) as output:
        for number in range(3):
            output.write(outcome(number))
        output.finish(KEYS)
    assert calls["_recorded"] == 2, "at the start, and for the manifest"
    with opened(tmp_path, per_shard=1) as output:
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
                assert output.shard_of(number) % 2 == part
                output.write(outcome(number))
            output.finish(KEYS)
    assert [line["id"] for line in lines(tmp_path / "manifest.jsonl")] == [f"row{n}" for n in range(5)]


def test_a_shard_belongs_to_one_part(tmp_path: Path) -> None:
    """Two writers would overwrite each other's entries."""
    with opened(tmp_path, per_shard=3) as output:
        assert [output.shard_of(number) for number in range(8)] == [0, 0, 0, 1, 1, 1, 2, 2]


def test_a_recorded_sample_that_a_shard_has_lost_is_not_half_there(tmp_path: Path) -> None:
    """As after a power failure: the shard is cut before it, and is a tar file again."""
    shard = TarShard(tmp_path / "a.tar", [])
    for name in ("a.bin", "b.bin"):
        shard.add(name, b"x" * 700)
    content = shard.path.read_bytes()
    shard.path.write_bytes(content[: 1536 + 512 + 100])
    shard = TarShard(shard.path, ["a", "b"])
    assert (shard.end, shard.path.stat().st_size) == (1536, 1536)
    shard.add("c.bin", b"y")
    assert [*read_shard(shard.path)] == ["a.bin", "c.bin"]


def test_other_settings_are_refused(tmp_path: Path) -> None:
    opened(tmp_path, {"model": "m", "tar": None}).__exit__(None, None, None)
    with pytest.raises(UsageError, match=r"model 'm', now 'n'; dtype None, now 'float16'"):
        opened(tmp_path, {"model": "n", "tar": None, "dtype": "float16"})
    opened(tmp_path, {"model": "m", "tar": None}).__exit__(None, None, None)


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
        "audio/shard-000000.tar",
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
        opened(tmp_path / "out", captions="srt", per_shard=4)
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

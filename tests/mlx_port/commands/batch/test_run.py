"""`mlx-port batch`: flags, plans, failures; the workers are stand-ins."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlx_port.commands.batch import run as work
from mlx_port.commands.main import run
from tts_core.audio.formats import names
from tts_core.bulk.folder import OutputFolder
from tts_core.bulk.outcome import Outcome
from tts_core.bulk.rows import TextRow
from tts_core.errors import NotFoundError

WORDS = ("Good morning.", "The soup is hot.", "Close the door.", "We have bread.", "The train is late.")


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    lines = [{"id": f"r{number}", "text": f"[S{1 + number % 2}] {text}"} for number, text in enumerate(WORDS)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def spoken(monkeypatch: pytest.MonkeyPatch) -> list[TextRow]:
    """Rows that a stand-in for the worker spoke."""
    seen: list[TextRow] = []

    def speak(build: Any, keyed: Any, places: Any) -> Iterator[Outcome]:
        for row, key in keyed:
            seen.append(row)
            yield Outcome(row.number, key, row.id, b"sound", {"duration": 1.0, "text": row.text})

    monkeypatch.setattr(work, "speak_locally", speak)
    return seen


def manifest(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "manifest.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "rtf"} for line in lines]


def test_longest_first_and_only_what_is_missing(
    rows: Path, tmp_path: Path, spoken: list[TextRow], capsys: Any
) -> None:
    flags = ["batch", str(rows), "--out", str(tmp_path / "out"), "--quiet"]
    assert run([*flags, "--limit", "3"]) == 0
    assert [row.id for row in spoken] == ["r1", "r2", "r0"]
    assert all(row.seed is not None for row in spoken)
    assert run(flags) == 0
    assert [row.id for row in spoken[3:]] == ["r4", "r3"]
    assert [line["text"] for line in manifest(tmp_path / "out")] == [
        f"[S{1 + n % 2}] {t}" for n, t in enumerate(WORDS)
    ]
    assert "5 rows in " in capsys.readouterr().out
    assert run(flags) == 0
    assert "5 rows in " in (said := capsys.readouterr().out)
    assert said.endswith("manifest.jsonl; nothing new was spoken\n")


def test_the_precision_of_the_codec_is_part_of_a_run(
    rows: Path, tmp_path: Path, spoken: list[TextRow], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("torch_ref.loading.choose_precision", lambda wanted, *_: wanted or "float32")
    flags = ["batch", str(rows), "--backend", "torch", "--quiet", "--out", str(tmp_path / "out")]
    assert run(flags) == 0
    assert run([*flags, "--codec-precision", "float32"]) == 0
    assert len(spoken) == 5
    assert run([*flags, "--codec-precision", "tf32"]) == 2
    assert "codec_precision" in capsys.readouterr().err


def test_shards_of_two_machines(rows: Path, tmp_path: Path, spoken: list[TextRow]) -> None:
    for part in (0, 1):
        flags = ["--out", str(tmp_path / "out"), "--tar", "2", "--shard", f"{part}/2", "--quiet"]
        assert run(["batch", str(rows), *flags]) == 0
    assert sorted(row.id for row in spoken[:3]) == ["r0", "r1", "r4"]
    assert len(manifest(tmp_path / "out")) == 5


def test_rows_that_are_there_are_counted(
    rows: Path, tmp_path: Path, spoken: list[TextRow], capsys: Any
) -> None:
    flags = ["batch", str(rows), "--out", str(tmp_path / "out")]
    assert run([*flags, "--limit", "3"]) == 0
    assert "there already" not in capsys.readouterr().err
    assert run(flags) == 0
    assert "3 of 5 rows there already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "cores", "judges"), [([], 8, 2), ([], 6, 1), ([], 1, 1), (["--judges", "3"], 8, 3)]
)
def test_judges_of_a_device(
    flags: list[str], cores: int, judges: int, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as asked for, else half of the cores, shared by the devices."""
    seen: list[int | None] = []

    def engine(flags: Any, setting: Any, todo: Any, part: Any) -> Iterator[Outcome]:
        seen.append(setting.judges)
        yield from ()

    monkeypatch.setattr(work, "engine", engine)
    monkeypatch.setattr(work, "devices", lambda backend: ["one", "other"])
    monkeypatch.setattr(work.os, "cpu_count", lambda: cores)
    run(["batch", str(rows), "--out", str(tmp_path / "out"), "--quiet", *flags])
    assert seen == [judges]


def test_a_plan_writes_nothing(rows: Path, tmp_path: Path, spoken: list[TextRow], capsys: Any) -> None:
    assert run(["batch", str(rows), "--out", str(tmp_path / "out"), "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("5 rows, about ")
    assert not (tmp_path / "out").exists()
    assert not spoken


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--shard", "2/2"], "'2/2' is not a part"),
        (["--places", "0"], "--places: 0 cannot be used; give a whole number >= 1"),
        (["--seed", "3"], "every row has its own"),
        (["--temperature", "-1"], "temperature"),
        (["--noise-shape", "x"], "--noise-shape"),
        (["--reject", "wre>0.3"], "--reject: no judge gives the figure 'wre'; did you mean wer?"),
        (["--reject", "wer"], "--reject: 'wer' is no condition"),
        (["--retries", "1"], "--retries: nothing is rejected"),
    ],
)
def test_bad_flags(
    rows: Path, tmp_path: Path, spoken: list[TextRow], flags: list[str], reason: str, capsys: Any
) -> None:
    assert run(["batch", str(rows), "--out", str(tmp_path / "out"), *flags]) == 2
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_missing_judges_are_said_before_any_work(
    rows: Path, tmp_path: Path, spoken: list[TextRow], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def missing(figures: Any) -> None:
        assert set(figures) == {"mos", "likeness"}
        raise NotFoundError("judge: the weights are not installed; run `mlx-port judge --install`")

    monkeypatch.setattr(work, "judges_of", missing)
    flags = ["--reject", "mos<3", "--reject", "likeness<0.6", "--quiet"]
    assert run(["batch", str(rows), "--out", str(tmp_path / "out"), *flags]) == 3
    assert "run `mlx-port judge --install`" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_keeps_its_conditions(
    rows: Path, tmp_path: Path, spoken: list[TextRow], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(work, "judges_of", lambda figures: [])
    flags = ["batch", str(rows), "--out", str(tmp_path / "out"), "--quiet"]
    assert run([*flags, "--reject", "wer>0.3"]) == 0
    assert run([*flags, "--reject", "wer>0.30", "--retries", "2"]) == 0
    assert run([*flags, "--reject", "wer>0.2"]) == 2
    assert "reject ['wer>0.3'], now ['wer>0.2']" in capsys.readouterr().err


def test_a_folder_keeps_its_format(rows: Path, tmp_path: Path, spoken: list[TextRow], capsys: Any) -> None:
    flags = ["batch", str(rows), "--out", str(tmp_path / "out"), "--quiet"]
    assert run([*flags, "--limit", "1"]) == 0
    assert run([*flags, "--format", "wav"]) == 2
    assert "format 'flac', now 'wav'" in capsys.readouterr().err
    assert len(spoken) == 1


def test_every_format_with_a_header(rows: Path, tmp_path: Path, spoken: list[TextRow]) -> None:
    for form in ("wav", "flac", "mp3", "opus", "aac"):
        out = tmp_path / form
        assert run(["batch", str(rows), "--out", str(out), "--format", form, "--quiet"]) == 0
        assert sorted(path.name for path in (out / "audio").iterdir()) == [f"r{n}.{form}" for n in range(5)]
    assert run(["batch", str(rows), "--out", str(tmp_path / "x"), "--format", "pcm"]) == 2


def test_what_judges_cannot_read_is_not_judged(rows: Path, tmp_path: Path, capsys: Any) -> None:
    flags = ["batch", str(rows), "--out", str(tmp_path / "out"), "--format", "aac", "--reject", "wer>0.3"]
    assert run(flags) == 2
    assert "judges cannot read aac; use --format wav, flac, mp3 or opus" in capsys.readouterr().err


def test_a_format_without_its_library_is_refused_before_any_work(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(names, "find_spec", lambda name: None)
    assert run(["batch", str(rows), "--out", str(tmp_path / "out"), "--format", "aac"]) == 3
    assert "mlx-port[formats]" in capsys.readouterr().err


def test_a_full_disk_costs_the_row_that_met_it(
    rows: Path, tmp_path: Path, spoken: list[TextRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    write = OutputFolder.write

    def full_once(self: OutputFolder, outcome: Outcome) -> None:
        if outcome.id == "r1" and outcome.error is None:
            raise OSError(28, "No space left on device")
        write(self, outcome)

    monkeypatch.setattr(OutputFolder, "write", full_once)
    assert run(["batch", str(rows), "--out", str(tmp_path / "out"), "--quiet"]) == 0
    [error] = (tmp_path / "out/errors.jsonl").read_text().splitlines()
    assert json.loads(error) == {
        "id": "r1",
        "number": 1,
        "place": "line 2",
        "error": "disk: No space left on device; free some space",
    }
    assert len(manifest(tmp_path / "out")) == 4


def test_a_disk_that_stays_full_ends_the_run(
    tmp_path: Path, spoken: list[TextRow], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (tmp_path / "rows.txt").write_text("[S1] Hello.\n" * 30)
    monkeypatch.setattr(
        OutputFolder, "_write_file", lambda self, outcome: (_ for _ in ()).throw(OSError(28, "full"))
    )
    assert run(["batch", str(tmp_path / "rows.txt"), "--out", str(tmp_path / "out"), "--quiet"]) == 5
    assert "10 rows could not be written" in capsys.readouterr().err
    assert len(spoken) == 10


def test_rows_between_those_that_cannot_be_written_are_written(
    tmp_path: Path, spoken: list[TextRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rows.txt").write_text("[S1] Hello.\n" * 30)
    write = OutputFolder.write

    def every_second(self: OutputFolder, outcome: Outcome) -> None:
        if outcome.number % 2 and outcome.error is None:
            raise OSError(36, "File name too long")
        write(self, outcome)

    monkeypatch.setattr(OutputFolder, "write", every_second)
    assert run(["batch", str(tmp_path / "rows.txt"), "--out", str(tmp_path / "out"), "--quiet"]) == 0
    assert len(manifest(tmp_path / "out")) == 15


def test_no_row_could_be_spoken(tmp_path: Path, spoken: list[TextRow], capsys: Any) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "x", "ref_audio": "missing.wav"}\n')
    assert run(["batch", str(tmp_path / "rows.jsonl"), "--out", str(tmp_path / "out"), "--quiet"]) == 6
    assert "no row could be spoken" in capsys.readouterr().err


def test_rows_that_could_not_be_read_are_not_all_rows(
    tmp_path: Path, spoken: list[TextRow], capsys: Any
) -> None:
    lines = [{"id": "a", "text": "[S1] Hello."}]
    lines += [{"id": name, "text": "x", "ref_audio": "missing.wav"} for name in "bcd"]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    flags = ["batch", str(tmp_path / "rows.jsonl"), "--out", str(tmp_path / "out"), "--quiet"]
    assert run(flags) == 0
    assert "3 rows failed" in capsys.readouterr().err
    assert len(manifest(tmp_path / "out")) == 1


def test_a_machine_counts_the_broken_rows_of_its_own_part(
    tmp_path: Path, spoken: list[TextRow], capsys: Any
) -> None:
    lines = [{"id": f"r{number}", "text": "[S1] Hello."} for number in range(4)]
    lines[0]["ref_audio"] = lines[1]["ref_audio"] = "missing.wav"
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    flags = ["batch", str(tmp_path / "rows.jsonl"), "--out", str(tmp_path / "out"), "--tar", "2", "--quiet"]
    assert run([*flags, "--shard", "1/2"]) == 0
    assert "failed" not in capsys.readouterr().err
    assert run([*flags, "--shard", "0/2"]) == 6
    assert "2 rows failed" in capsys.readouterr().err
    assert len(manifest(tmp_path / "out")) == 2


def test_the_speed_of_a_run_cannot_be_misread(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = work.BatchProgress(2, 0, quiet=True)
    progress.seconds = 3.0
    monkeypatch.setattr(time, "perf_counter", lambda: progress.started + 6)
    assert progress.summary() == "3 s of new speech, 2.0 times slower than real time (RTF 2.00)"


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["--out", ""], 2, "--out: empty; give a folder"),
        (["--out", "file"], 2, "--out: file/.work cannot be made (Not a directory); give another folder"),
        (["--out", "new", "--engine", "ray"], 3, "--engine: Ray is not installed; pip install"),
    ],
)
def test_a_folder_that_cannot_be_made_and_nothing_made_in_vain(
    flags: list[str], code: int, message: str, rows: Path, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    Path("file").touch()
    assert run(["batch", str(rows), *flags]) == code
    assert capsys.readouterr().err.startswith(f"error: {message}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "rows.jsonl"]


def test_every_row_is_checked_before_the_first_is_spoken(
    tmp_path: Path, spoken: list[TextRow], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """All faults at once, with their rows; the run goes on without them."""
    lines = [
        {"id": "good", "text": "[S1] Hello."},
        {"id": "tag", "text": "[S3] Hello."},
        {"id": "option", "text": "[S1] Yes.", "options": {"temperature": -1}},
        {"id": "voice", "text": "[S1] No.", "voice": "nobody"},
        {"id": "sound", "text": "[S1] No.", "ref_audio": str(tmp_path / "gone.wav"), "ref_text": "Gone."},
        {"id": "letters", "text": "[S1] 東京."},
        {"id": "last", "text": "[S1] Good night."},
        {"id": "types", "text": 5},
        {"id": "path", "text": "[S1] No.", "ref_audio": "\ud800", "ref_text": "Gone."},
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join([*map(json.dumps, lines), "{", ""]))
    said_first: list[str] = []
    speak = work.engine

    def noted(*given: Any) -> Any:
        said_first.append(capsys.readouterr().err)
        return speak(*given)

    monkeypatch.setattr(work, "engine", noted)
    run(["batch", str(tmp_path / "rows.jsonl"), "--out", str(tmp_path / "out"), "--quiet"])
    [said] = said_first
    assert said.splitlines()[0].startswith("8 rows cannot be spoken")
    bad = ["tag", "option", "voice", "sound", "letters", "types", "path", "000010"]
    assert [line.partition(":")[0] for line in said.splitlines()[1:]] == [
        f"line {number} ({name})" for number, name in zip((2, 3, 4, 5, 6, 8, 9, 10), bad, strict=True)
    ]
    assert "internal" not in said
    assert "--skip-unknown" in said
    assert "skip_unknown" not in said
    assert sorted(row.id for row in spoken) == ["good", "last"]
    errors = [json.loads(line)["id"] for line in (tmp_path / "out/errors.jsonl").read_text().splitlines()]
    assert errors == bad
    assert len(manifest(tmp_path / "out")) == 2


def test_a_plan_lists_the_lines_that_cannot_be_read(rows: Path, tmp_path: Path, capsys: Any) -> None:
    rows.write_text("{\n" + rows.read_text())
    assert run(["batch", str(rows), "--out", str(tmp_path / "out"), "--dry-run"]) == 0
    said = capsys.readouterr()
    assert said.err.splitlines()[1].startswith("line 1 (000001): not JSON")
    assert said.out.startswith("5 rows, ")
    assert run(["batch", str(rows), "--out", str(tmp_path / "out"), "--dry-run", "--limit", "1"]) == 0
    assert capsys.readouterr().out.startswith("0 rows, ")


def test_rows_that_cannot_be_spoken_are_said_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    count = work.FAULTS + 3
    faults = [Outcome(number, "", f"r{number}", error="no words") for number in range(count)]
    work.report_faults(faults, {number: f"rows.jsonl:{number}" for number in range(count)})
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines()[0] == f"{count} rows cannot be spoken; the others are:"
    assert said.err.splitlines()[-1] == "and 3 more; all are in errors.jsonl"

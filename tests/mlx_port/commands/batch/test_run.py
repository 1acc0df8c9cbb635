"""`mlx-port batch`: flags, plans, failures; the workers are stand-ins."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
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


def write_rows(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def written(path: Path, texts: Iterable[str]) -> Path:
    """Write rows of both speakers."""
    write_rows(path, [{"id": f"r{n}", "text": f"[S{1 + n % 2}] {text}"} for n, text in enumerate(texts)])
    return path


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return written(tmp_path / "rows.jsonl", WORDS)


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


@pytest.fixture
def batch(rows: Path, tmp_path: Path, capsys: Any) -> Callable[..., tuple[int, str, str]]:
    """Run `mlx-port batch` into tmp_path/out; returns the exit code, stdout and stderr."""

    def start(*flags: object) -> tuple[int, str, str]:
        code = run(["batch", str(rows), "--out", str(tmp_path / "out"), *map(str, flags)])
        return code, *capsys.readouterr()

    return start


def manifest(folder: Path) -> list[dict[str, Any]]:
    """The lines of the manifest in folder/out."""
    return [json.loads(line) for line in (folder / "out/manifest.jsonl").read_text().splitlines()]


def test_longest_first_and_only_what_is_missing(batch: Any, tmp_path: Path, spoken: list[TextRow]) -> None:
    code, _, said = batch("--limit", "3")
    assert (code, "there already" in said, "failed" in said) == (0, False, False)
    assert [row.id for row in spoken] == ["r1", "r2", "r0"]
    assert all(row.seed is not None for row in spoken)
    code, out, said = batch()
    assert (code, "3 of 5 rows there already" in said) == (0, True)
    assert [row.id for row in spoken[3:]] == ["r4", "r3"]
    texts = [f"[S{1 + n % 2}] {t}" for n, t in enumerate(WORDS)]
    assert [line["text"] for line in manifest(tmp_path)] == texts
    assert "5 rows in " in out
    code, out, _ = batch("--quiet")
    assert (code, "5 rows in " in out) == (0, True)
    assert out.endswith("manifest.jsonl; nothing new was spoken\n")


def test_parts_of_two_machines(batch: Any, tmp_path: Path, spoken: list[TextRow]) -> None:
    for part in (0, 1):
        assert batch("--shard", f"{part}/2", "--quiet")[0] == 0
    assert sorted(row.id for row in spoken[:3]) == ["r0", "r2", "r4"]
    assert len(manifest(tmp_path)) == 5


@pytest.mark.parametrize(
    ("flags", "cores", "judges"), [([], 8, 2), ([], 6, 1), ([], 1, 1), (["--judges", "3"], 8, 3)]
)
def test_judges_of_a_device(
    flags: list[str], cores: int, judges: int, batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as asked for, else half of the cores, shared by the devices."""
    seen: list[int | None] = []

    def engine(flags: Any, setting: Any, todo: Any, part: Any) -> Iterator[Outcome]:
        seen.append(setting.judges)
        yield from ()

    monkeypatch.setattr(work, "engine", engine)
    monkeypatch.setattr(work, "devices", lambda backend: ["one", "other"])
    monkeypatch.setattr(work.os, "cpu_count", lambda: cores)
    batch("--quiet", *flags)
    assert seen == [judges]


def test_a_plan_writes_nothing(batch: Any, tmp_path: Path, spoken: list[TextRow]) -> None:
    code, out, _ = batch("--dry-run")
    assert code == 0
    assert out.startswith("5 rows, about ")
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
        (["--format", "pcm"], "--format"),
        (["--format", "aac", "--reject", "wer>0.3"], "cannot read aac; use --format wav, flac, mp3 or opus"),
    ],
)
def test_bad_flags(batch: Any, tmp_path: Path, flags: list[str], reason: str) -> None:
    code, _, said = batch(*flags)
    assert (code, reason in said) == (2, True), said
    assert not (tmp_path / "out").exists()


def test_missing_judges_are_said_before_any_work(
    batch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(figures: Any) -> None:
        assert set(figures) == {"mos", "likeness"}
        raise NotFoundError("judge: the weights are not installed; run `mlx-port judge --install`")

    monkeypatch.setattr(work, "judges_of", missing)
    code, _, said = batch("--reject", "mos<3", "--reject", "likeness<0.6", "--quiet")
    assert (code, "run `mlx-port judge --install`" in said) == (3, True)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("first", "same", "other", "message"),
    [
        (
            ["--reject", "wer>0.3"],
            ["--reject", "wer>0.30", "--retries", "2"],
            ["--reject", "wer>0.2"],
            "reject ['wer>0.3'], now ['wer>0.2']",
        ),
        (["--limit", "1"], [], ["--format", "wav"], "format 'flac', now 'wav'"),
        (
            ["--backend", "torch"],
            ["--backend", "torch", "--codec-precision", "float32"],
            ["--backend", "torch", "--codec-precision", "tf32"],
            "codec_precision",
        ),
    ],
    ids=["conditions", "format", "precision of the codec"],
)
def test_a_folder_keeps_its(
    batch: Any, spoken: list[TextRow], monkeypatch: pytest.MonkeyPatch, first, same, other, message
) -> None:
    monkeypatch.setattr(work, "judges_of", lambda figures: [])
    monkeypatch.setattr("torch_ref.loading.choose_precision", lambda wanted, *_: wanted or "float32")
    assert batch(*first, "--quiet")[0] == 0
    assert batch(*same, "--quiet")[0] == 0
    assert len(spoken) == 5, "none is spoken twice"
    code, _, said = batch(*other, "--quiet")
    assert (code, message in said) == (2, True), said
    assert len(spoken) == 5


@pytest.mark.parametrize("form", ["wav", "flac", "mp3", "opus", "aac"])
def test_every_format_with_a_header(batch: Any, tmp_path: Path, spoken: list[TextRow], form: str) -> None:
    assert batch("--format", form, "--quiet")[0] == 0
    written = sorted(path.name for path in (tmp_path / "out/audio").iterdir())
    assert written == [f"r{n}.{form}" for n in range(5)]


def test_a_format_without_its_library_is_refused(batch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "find_spec", lambda name: None)
    code, _, said = batch("--format", "aac")
    assert (code, "mlx-port[formats]" in said) == (3, True)


def test_a_full_disk_costs_the_row_that_met_it(
    batch: Any, tmp_path: Path, spoken: list[TextRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    write = OutputFolder.write

    def full_once(self: OutputFolder, outcome: Outcome) -> None:
        if outcome.id == "r1" and outcome.error is None:
            raise OSError(28, "No space left on device")
        write(self, outcome)

    monkeypatch.setattr(OutputFolder, "write", full_once)
    assert batch("--quiet")[0] == 7
    [error] = (tmp_path / "out/errors.jsonl").read_text().splitlines()
    assert json.loads(error) == {
        "id": "r1",
        "number": 1,
        "place": "line 2",
        "error": "disk: No space left on device; free some space",
    }
    assert len(manifest(tmp_path)) == 4


def test_a_disk_that_stays_full_ends_the_run(
    batch: Any, rows: Path, spoken: list[TextRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(rows, [{"text": "[S1] Hello."}] * 30)
    monkeypatch.setattr(
        OutputFolder, "_write_file", lambda self, outcome: (_ for _ in ()).throw(OSError(28, "full"))
    )
    code, _, said = batch("--quiet")
    assert (code, "10 rows could not be written" in said) == (5, True)
    assert len(spoken) == 10


def test_rows_between_those_that_cannot_be_written_are_written(
    batch: Any, rows: Path, tmp_path: Path, spoken: list[TextRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(rows, [{"text": "[S1] Hello."}] * 30)
    write = OutputFolder.write

    def every_second(self: OutputFolder, outcome: Outcome) -> None:
        if outcome.number % 2 and outcome.error is None:
            raise OSError(36, "File name too long")
        write(self, outcome)

    monkeypatch.setattr(OutputFolder, "write", every_second)
    assert batch("--quiet")[0] == 7
    assert len(manifest(tmp_path)) == 15


def test_a_machine_counts_the_broken_rows_of_its_own_part(
    batch: Any, rows: Path, tmp_path: Path, spoken: list[TextRow]
) -> None:
    """Where all are broken, no row could be spoken; otherwise the run has an end."""
    broken, whole = {"text": "[S1] Hello.", "ref_audio": "missing.wav"}, {"text": "[S1] Hello."}
    write_rows(rows, [broken, broken, broken, whole, broken])
    code, _, said = batch("--quiet", "--shard", "1/2")
    assert (code, "1 row failed" in said) == (7, True), said
    code, _, said = batch("--quiet", "--shard", "0/2")
    assert (code, "3 rows failed" in said, "no row could be spoken" in said) == (6, True, True), said
    assert len(manifest(tmp_path)) == 1


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
    batch: Any, rows: Path, tmp_path: Path, spoken: list[TextRow], monkeypatch: Any, capsys: Any
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
    rows.write_text("\n".join([*map(json.dumps, lines), "{", ""]))
    said_first: list[str] = []
    speak = work.engine

    def noted(*given: Any) -> Any:
        said_first.append(capsys.readouterr().err)
        return speak(*given)

    monkeypatch.setattr(work, "engine", noted)
    code, _, planned = batch("--dry-run")
    assert (code, said_first) == (0, [])
    assert batch("--quiet")[0] == 7
    [said] = said_first
    assert planned == said, "a plan lists the rows that a run refuses"
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
    assert len(manifest(tmp_path)) == 2


def test_a_plan_lists_the_lines_that_cannot_be_read(batch: Any, rows: Path) -> None:
    rows.write_text("{\n" + rows.read_text())
    code, out, said = batch("--dry-run")
    assert (code, out.startswith("5 rows, ")) == (0, True)
    assert said.splitlines()[1].startswith("line 1 (000001): not JSON")
    code, out, _ = batch("--dry-run", "--limit", "1")
    assert (code, out.startswith("0 rows, ")) == (0, True)


@pytest.mark.parametrize("name", ["sound.wav", "rows.jsonl", "utf16.txt"])
def test_what_is_no_text_is_refused_as_a_whole(
    batch: Any, tmp_path: Path, spoken: list[TextRow], capsys: Any, name: str
) -> None:
    """Not spoken where some of its bytes happen to be letters."""
    (tmp_path / name).write_bytes("Hi.\nThere.\n".encode("utf-16"))
    code = run(["batch", str(tmp_path / name), "--out", str(tmp_path / "out")])
    said = capsys.readouterr().err
    assert (code, said.count("\n"), f"{name} is not a text file" in said) == (2, 1, True)
    assert not (tmp_path / "out").exists()


def test_a_plan_checks_texts_and_references(batch: Any, rows: Path, spoken: list[TextRow]) -> None:
    write_rows(rows, [{"text": "[S1] Hello."}, {"text": " "}, {"text": "[S1] No.", "ref_audio": "gone.wav"}])
    code, out, said = batch("--dry-run")
    assert (code, out.startswith("1 row, ")) == (0, True)
    assert [line.partition(" (")[0] for line in said.splitlines()[1:]] == ["line 2", "line 3"]


def test_a_process_of_mlx_launch_ends_with_0(
    batch: Any, rows: Path, spoken: list[TextRow], monkeypatch: Any
) -> None:
    """Any other code would stop the other processes."""
    write_rows(rows, [{"text": "[S1] Hello."}, {"text": ""}])
    assert batch("--quiet")[0] == 7
    monkeypatch.setenv("MLX_RANK", "0")
    assert batch("--quiet")[0] == 0


def test_rows_that_stay_rejected_are_listed(batch: Any, monkeypatch: Any) -> None:
    """Those of the whole folder, also by a run that speaks nothing."""

    def speak(build: Any, keyed: Any, places: Any) -> Iterator[Outcome]:
        for row, key in keyed:
            accepted = row.id not in ("r1", "r3")
            judged = {} if row.id == "r3" else {"wer": 0.0 if accepted else 0.4}
            why = {"judge_error": "no sound"} if row.id == "r3" else {}
            chosen = {"id": row.id, "attempts": 3, "accepted": accepted, "judged": judged, **why}
            yield Outcome(row.number, key, row.id, b"sound", chosen)

    monkeypatch.setattr(work, "judges_of", lambda figures: [])
    monkeypatch.setattr(work, "speak_locally", speak)
    for _ in range(2):
        code, _, said = batch("--reject", "wer>0.3", "--quiet")
        assert code == 0
        assert said.splitlines() == [
            "2 rows rejected; the best attempt of each is kept:",
            "r1: wer 0.4 after 3 attempts",
            "r3: no sound after 3 attempts",
        ]


def test_rows_that_cannot_be_spoken_are_said_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    count = work.FAULTS + 3
    faults = [Outcome(number, "", f"r{number}", error="no words") for number in range(count)]
    work.report_faults(faults, {number: f"rows.jsonl:{number}" for number in range(count)})
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines()[0] == f"{count} rows cannot be spoken; the others are:"
    assert said.err.splitlines()[-1] == "and 3 more; all are in errors.jsonl"

"""`mlx-port batch` with the embedded voice: kills, faults, judges and engines; every run is a process.

Runs that are compared over many rows have one place: in a batch of other rows float32 rounds otherwise, and
r7 of twenty has a draw with a margin of 1e-6.
"""

import json
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.mlx_port.commands.batch.test_run import WORDS, write_rows, written
from tts_core.bulk.rejection import attempt_seed

pytestmark = pytest.mark.rest

BATCH = [sys.executable, "-c", "from mlx_port.commands.main import main; main()", "batch"]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return written(tmp_path / "rows.jsonl", WORDS)


def manifest(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "manifest.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "rtf"} for line in lines]


def batch(rows: Path, out: Path, *flags: str, **changes: Any) -> None:
    """Run the command to its end."""
    command = [*BATCH, str(rows), "--out", str(out), "--quiet", *flags]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **changes)


def killed_and_resumed(rows: Path, out: Path, after: float, *flags: str) -> int:
    """Kill a run after some seconds, then let a second one finish. Rows that the first had finished."""
    running = subprocess.Popen([*BATCH, str(rows), "--out", str(out), "--quiet", *flags])
    time.sleep(after)
    running.send_signal(signal.SIGKILL)
    running.wait()
    record = out / ".work/manifest-0-of-1.jsonl"
    done = record.read_bytes().count(b"\n") if record.exists() else 0
    batch(rows, out, *flags)
    assert record.read_bytes().count(b"\n") == len(WORDS), "none is spoken twice"
    return done


def test_killed_and_resumed(rows: Path, tmp_path: Path) -> None:
    batch(rows, tmp_path / "whole")
    killed_and_resumed(rows, tmp_path / "killed", 4.0, "--places", "1")
    assert manifest(tmp_path / "killed") == manifest(tmp_path / "whole")


def test_rejected_rows_are_spoken_again(rows: Path, tmp_path: Path) -> None:
    """With pocketsphinx: nothing is accepted, then everything."""
    pytest.importorskip("pocketsphinx", reason="pocketsphinx is not installed")
    found = {}
    for name, condition in (("none", "wer>-1"), ("all", "wer>9")):
        batch(rows, tmp_path / name, "--reject", condition, "--retries", "1", "--limit", "3")
        found[name] = manifest(tmp_path / name)
    for none, every in zip(found["none"], found["all"], strict=True):
        assert (none["attempts"], none["accepted"]) == (2, False)
        assert (every["attempts"], every["accepted"]) == (1, True)
        assert none["judged"]["wer"] <= every["judged"]["wer"]
        assert none["seed"] in (every["seed"], attempt_seed(every["key"], 1))
        assert none["judges"] == {"wer": "pocketsphinx 5 (en-us)"}


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("--reject", "wer>-1", "--retries", "2")])
def test_twenty_kills(rows: Path, tmp_path: Path, flags: tuple[str, ...]) -> None:
    if "--reject" in flags:
        pytest.importorskip("pocketsphinx", reason="pocketsphinx is not installed")
    started = time.perf_counter()
    batch(rows, tmp_path / "whole", *flags, "--places", "1")
    seconds = time.perf_counter() - started
    rng = random.Random(0)
    finished = []
    for number in range(20):
        out = tmp_path / f"killed{number}"
        finished.append(killed_and_resumed(rows, out, rng.uniform(0.1, 1) * seconds, *flags, "--places", "1"))
        assert manifest(out) == manifest(tmp_path / "whole")
    assert 0 < sum(finished) < 20 * len(WORDS), "some were killed in the middle"


@pytest.mark.slow
def test_bad_rows_cost_only_themselves(tmp_path: Path) -> None:
    """Unreadable references, hostile texts and options, and sounds that the disk refuses."""
    (tmp_path / "noise.wav").write_bytes(b"RIFF" + bytes(range(256)) * 40)
    (tmp_path / "folder.wav").mkdir()
    good = {f"good{number}": {"text": f"[S1] {text}"} for number, text in enumerate(WORDS[:3])}
    bad: dict[str, dict[str, Any]] = {
        "noise": {"text": "Hello.", "ref_audio": "noise.wav", "ref_text": "Hello."},
        "folder": {"text": "Hello.", "ref_audio": "folder.wav", "ref_text": "Hello."},
        "endless": {"text": "Hello.", "ref_audio": "/dev/zero", "ref_text": "Hello."},
        "nobody": {"text": "Hello.", "voice": "../../etc"},
        "controls": {"text": "\x00\x1b[2J\u202e\ud7ff"},
        "empty": {"text": " [S1] "},
        "letters": {"text": "\u4f60\u597d\uff0c\u4e16\u754c\u3002"},
        "option": {"text": "Hello.", "options": {"max_frames": 10**12}},
        "unknown": {"text": "Hello.", "options": {"__class__": 1}},
        "deep": {"text": "Hello.", "options": {"temperature": [[[{}]]]}},
    }
    large = {"large": {"text": "[S2] The old man went home and looked at the sea for a long time again."}}
    source = tmp_path / "rows.jsonl"
    lines = [{"id": name, **row} for name, row in (bad | large | good).items()]
    random.Random(1).shuffle(lines)
    write_rows(source, lines)
    batch(source, tmp_path / "out", "--limit", "1")  # the voice is converted
    out = tmp_path / "out2"
    batch(source, out, "--format", "wav", preexec_fn=small_disk)
    errors = [json.loads(line) for line in (out / "errors.jsonl").read_text().splitlines()]
    assert {error["id"] for error in errors} == {*bad, *large}
    assert not [error for error in errors if "internal" in error["error"] and error["id"] != "large"]
    assert {line["id"] for line in manifest(out)} == {*good}
    batch(source, out, "--format", "wav")
    assert {line["id"] for line in manifest(out)} == {*good, *large}


def small_disk() -> None:
    """Let the kernel refuse files above 100 kB, 3 s of speech."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--reject", "wer>-1", "--retries", "1")])
def test_engines_give_the_same_manifest(rows: Path, tmp_path: Path, more: tuple[str, ...]) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    if more:
        pytest.importorskip("pocketsphinx", reason="pocketsphinx is not installed")
    launch = [str(Path(sys.executable).parent / "mlx.launch"), "-n", "2", "--"]
    for name, command, flags in (
        ("local", BATCH, []),
        ("ray", BATCH, ["--engine", "ray", "--workers", "2", "--places", "1"]),
        ("launched", [*launch, *BATCH], []),
    ):
        out = ["--out", str(tmp_path / name), "--quiet"]
        subprocess.run([*command, str(rows), *out, *flags, *more], check=True, capture_output=True)
    assert manifest(tmp_path / "local") == manifest(tmp_path / "ray") == manifest(tmp_path / "launched")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "is_worker", "lost"),
    [
        ((), lambda line: "spawn_main" in line and "resource_tracker" not in line, 1),
        (
            ("--engine", "ray", "--workers", "2"),
            lambda line: "MapWorker(MapBatches(Actor)).submit" in line,
            0,
        ),
    ],
)
def test_a_worker_that_is_killed(
    tmp_path: Path, flags: tuple[str, ...], is_worker: Callable[[str], bool], lost: int
) -> None:
    """Ray repeats its rows; a local one costs the row that it spoke, until the next run."""
    if flags:
        pytest.importorskip("ray", reason="Ray is not installed")
    source = written(tmp_path / "rows.jsonl", WORDS * 4)
    batch(source, tmp_path / "whole", "--places", "1")
    command = [*BATCH, str(source), "--out", str(tmp_path / "out"), "--quiet", "--places", "1", *flags]
    running = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    record = tmp_path / "out/.work/manifest-0-of-1.jsonl"
    killed = None
    while running.poll() is None:
        busy = [one for one in psutil.Process(running.pid).children(recursive=True) if is_worker(called(one))]
        started = flags or (record.exists() and record.stat().st_size)
        if killed is None and busy and started:
            time.sleep(1)
            killed = busy[0]
            killed.kill()
        time.sleep(0.1)
    assert running.returncode == 0
    assert killed is not None
    assert len(manifest(tmp_path / "out")) == len(WORDS) * 4 - lost
    batch(source, tmp_path / "out", "--places", "1")
    assert manifest(tmp_path / "out") == manifest(tmp_path / "whole")


def called(process: psutil.Process) -> str:
    """Command line of a process; of one that ended, nothing."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""

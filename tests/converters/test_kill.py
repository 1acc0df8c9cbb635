"""Conversions that are killed at any moment: never half a model, and the next run clears up and says so."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from converters import cli
from converters.published import open_published
from tests.converters.folders import DAC_HF, V_0626_HF, left_in
from tts_core.command import runner
from tts_core.files.record import Record

pytestmark = pytest.mark.rest

ROOT = Path(__file__).parents[2]
# converts again and again, in place of the folder before, and says when it begins
CODE = """
import sys
from converters.convert import convert
from converters.published import open_published
source = open_published(sys.argv[1], codec=sys.argv[2], offline=True)
while True:
    print("begin", flush=True)
    convert(source, sys.argv[3], force=True)
"""


def kill_one(destination: Path, wait: float) -> None:
    """Start conversions, and kill the process `wait` seconds after the third began."""
    arguments = [sys.executable, "-c", CODE, str(V_0626_HF), str(DAC_HF), str(destination)]
    with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        for _ in range(3):
            assert process.stdout.readline() == b"begin\n"
        time.sleep(wait)
        os.kill(process.pid, signal.SIGKILL)


def check_whole(destination: Path) -> None:
    record = Record.read(destination)
    record.check_sizes()
    record.check(record.parts())
    assert open_published(destination).model == "dia"


def convert_once(capsys: pytest.CaptureFixture[str], destination: Path) -> str:
    flags = ["--hf-path", V_0626_HF, "--codec", DAC_HF, "--mlx-path", destination, "--force", "--offline"]
    assert runner.run(cli.convert_weights, [str(flag) for flag in flags], debug=False) == 0
    return capsys.readouterr().err


def kills(count: int, seed: int, folder: Path, capsys: pytest.CaptureFixture[str], caplog) -> int:
    """Kill conversions at random moments; return the number of those that left files."""
    rng, destination, left = random.Random(seed), folder / "out", 0
    for _ in range(count):
        kill_one(destination, rng.random() * 0.15)
        leftovers = [name for name in left_in(folder) if name != "out"]
        caplog.clear()
        convert_once(capsys, destination)
        assert left_in(folder) == ["out"]
        check_whole(destination)
        said = [line for line in caplog.messages if "interrupted" in line]
        assert len([line for line in said if "removed" in line]) == len(leftovers)
        left += len(leftovers)
    return left


def test_a_few_kills(tmp_path, capsys, caplog):
    assert kills(2, 0, tmp_path, capsys, caplog) > 0


@pytest.mark.slow
def test_forty_kills(tmp_path, capsys, caplog):
    assert kills(40, 1, tmp_path, capsys, caplog) > 10


STAGES = ["write", "compare", "fsync", "rename", "rename again", "rmtree"]
STOP = """
import os, signal, shutil, sys
from converters import cli
from converters.files import destination, read_back, workplace, writer

count = iter(range(10))
def stop(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
match sys.argv[1]:
    case "write": writer.SafetensorsWriter.write = stop
    case "compare": read_back.ReadBack.compare = stop
    case "fsync": os.fsync = stop
    case "rename": os.rename = stop
    case "rename again":
        rename = os.rename
        os.rename = lambda *given: rename(*given) if next(count) == 0 else stop()
    case "rmtree": shutil.rmtree = stop
cli.main(sys.argv[2:])
"""


@pytest.mark.parametrize("stage", STAGES)
def test_a_kill_at_each_stage_of_replacing(tmp_path, capsys, caplog, stage):
    destination = tmp_path / "out"
    convert_once(capsys, destination)
    before = Record.read(destination).files
    flags = ["--hf-path", V_0626_HF, "--codec", DAC_HF, "--mlx-path", destination, "--force"]
    command = [sys.executable, "-c", STOP, stage, *map(str, flags), "--dtype", "bfloat16"]
    done = subprocess.run(command, cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(left_in(tmp_path)) == (1 if stage == "rename again" else 2)
    if stage == "rename again":  # between the two renames: the one moment without a model
        assert not destination.exists()
    else:
        check_whole(destination)
        assert (Record.read(destination).files == before) == (stage != "rmtree")
    caplog.clear()
    convert_once(capsys, destination)
    check_whole(destination)
    assert left_in(tmp_path) == ["out"]
    restored = [line for line in caplog.messages if "put back" in line]
    assert len(restored) == (stage == "rename again")
    assert any("that an interrupted conversion left" in line for line in caplog.messages)


def test_the_command_says_so_on_one_line(tmp_path):
    """Not into its JSON."""
    (tmp_path / ".mlx-port-abcd1234/new").mkdir(parents=True)
    (tmp_path / ".mlx-port-abcd1234/new/model.safetensors").write_bytes(bytes(2_000_000))
    flags = ["--hf-path", V_0626_HF, "--codec", DAC_HF, "--mlx-path", tmp_path / "out", "--json"]
    code = "import sys; from converters import cli; cli.main(sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, flags)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stderr == f"{tmp_path}: removed 2.0 MB that an interrupted conversion left\n"
    assert done.stdout.startswith("{")
    assert left_in(tmp_path) == ["out"]

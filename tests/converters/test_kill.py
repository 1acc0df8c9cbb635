"""Conversions that are killed at any moment: never half a model, and the next run clears up."""

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


def convert_once(destination: Path) -> None:
    flags = ["--hf-path", V_0626_HF, "--codec", DAC_HF, "--mlx-path", destination, "--force", "--offline"]
    assert runner.run(cli.convert_weights, [str(flag) for flag in flags], debug=False) == 0


def kills(count: int, seed: int, folder: Path) -> int:
    """Kill conversions at random moments; return the number of those that left files."""
    rng, destination, left = random.Random(seed), folder / "out", 0
    for _ in range(count):
        kill_one(destination, rng.random() * 0.15)
        leftovers = [name for name in left_in(folder) if name != "out"]
        convert_once(destination)
        assert left_in(folder) == ["out"]
        check_whole(destination)
        left += len(leftovers)
    return left


def test_a_few_kills(tmp_path):
    assert kills(2, 0, tmp_path) > 0


@pytest.mark.slow
def test_forty_kills(tmp_path):
    assert kills(40, 1, tmp_path) > 10


STAGES = ["write", "fsync", "rename", "rename again", "rmtree"]
STOP = """
import os, signal, shutil, sys
from converters import cli
from converters.files import writer

count = iter(range(10))
def stop(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
match sys.argv[1]:
    case "write": writer.SafetensorsWriter.write = stop
    case "fsync": os.fsync = stop
    case "rename": os.rename = stop
    case "rename again":
        rename = os.rename
        os.rename = lambda *given: rename(*given) if next(count) == 0 else stop()
    case "rmtree": shutil.rmtree = stop
cli.main(sys.argv[2:])
"""


@pytest.mark.parametrize("stage", STAGES)
def test_a_kill_at_each_stage_of_replacing(tmp_path, stage):
    destination = tmp_path / "out"
    convert_once(destination)
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
    convert_once(destination)
    check_whole(destination)
    assert left_in(tmp_path) == ["out"]

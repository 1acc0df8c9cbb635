"""Help at once: nothing heavy is imported for it. benchmarks/help_time.py measures the milliseconds."""

import subprocess
import sys

import pytest

from mlx_port.commands import main as cli

HEAVY = {
    "numpy",
    "mlx",
    "torch",
    "transformers",
    "soundfile",
    "soxr",
    "safetensors",
    "huggingface_hub",
    "tqdm",
    "sounddevice",
}
COMMANDS = [["--help"], ["-h"], *([name, "--help"] for name in cli.COMMANDS)]


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_help_imports_nothing_heavy(arguments):
    code = (
        "import sys; from mlx_port.commands.main import run; code = run(sys.argv[1:]); "
        f"sys.exit(code or ' '.join({HEAVY!r} & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: mlx-port")


def test_help_names_every_command(capsys):
    assert cli.run(["--help"]) == 0
    out = capsys.readouterr().out
    for name in cli.COMMANDS:
        assert f"  {name}" in out


@pytest.mark.parametrize("arguments", [["speak"], ["--no-such-flag"], []])
def test_usage_errors_are_one_line(capsys, arguments):
    assert cli.run(arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert err.count("\n") == 1

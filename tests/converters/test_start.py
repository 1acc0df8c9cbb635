"""What a program finds at its start: signals, closed streams, variables."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tts_core.command import start

pytestmark = pytest.mark.rest

ROOT = Path(__file__).parents[2]
CONVERT = "import sys; from converters.start import main; sys.argv[0] = 'convert-weights'; main()"
SPEAK = "from mlx_port.commands.start import main; main()"
INTERRUPTED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # job runners start tests with SIGINT ignored
from tts_core.command.start import start
start("program")
"""


def program(
    code: str, *arguments: object, closed: tuple[int, ...] = (), environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program whose standard streams of these numbers are closed."""
    closing = " ".join(f"{number}>&-" for number in closed)
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {closing}', "sh", sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_both_programs_run() -> None:
    for code, name in ((CONVERT, "convert-weights"), (SPEAK, "mlx-port")):
        done = program(code, "--help")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"Usage: {name} [OPTIONS]")


def test_an_interrupted_import_shows_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    done = program(INTERRUPTED, environment={"PYTHONPATH": f"{ROOT}:{tmp_path}"})
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_after_the_import_an_interrupt_is_an_exception(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import os, signal\n"
        "def main():\n"
        "    try: os.kill(os.getpid(), signal.SIGINT)\n"
        "    except KeyboardInterrupt: print('caught')\n"
    )
    done = program(INTERRUPTED, environment={"PYTHONPATH": f"{ROOT}:{tmp_path}"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "caught\n", "")


@pytest.mark.parametrize("closed", [(2,), (1, 2), (0, 1, 2)])
def test_closed_streams_get_nothing_and_spoil_nothing(closed: tuple[int, ...], tmp_path: Path) -> None:
    pytest.importorskip("mlx")
    output = tmp_path / "a.wav"
    done = program(SPEAK, "generate", "--text", "Hello there.", "-o", output, closed=closed)
    assert done.returncode == 0
    assert output.read_bytes()[:4] == b"RIFF"
    assert program(SPEAK, "generate", "--text", "Hi.", "-o", "none/a.wav", closed=closed).returncode == 3


def test_speech_to_a_closed_stdout_is_refused() -> None:
    done = program(SPEAK, "generate", "--text", "Hello there.", "--output", "-", closed=(1,))
    assert done.returncode == 2
    assert done.stderr == "error: --output: stdout is closed; pipe the sound on, or give the name of a file\n"


@pytest.mark.parametrize("name", ["TMPDIR", "TEMPDIR"])
def test_a_missing_folder_of_temporary_files_is_passed_over(name: str, tmp_path: Path) -> None:
    """MLX compiles small functions there on a CPU."""
    done = program(
        SPEAK, "generate", "--text", "Hello there.", "-o", tmp_path / "a.wav", environment={name: "/nowhere"}
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(sys.version_info[:3] == (3, 13, 0), reason="Python 3.13.0 cannot import NumPy there")
@pytest.mark.parametrize("command", [["generate", "--text", "Hello."], ["convert", "embedded", "new"]])
def test_a_current_folder_that_was_removed(command: list[str], tmp_path: Path) -> None:
    code = f"import os; os.mkdir({str(tmp_path / 'gone')!r}); os.chdir({str(tmp_path / 'gone')!r}); "
    code += f"os.rmdir({str(tmp_path / 'gone')!r}); {SPEAK}"
    done = program(code, *command)
    assert done.returncode in (2, 3)
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert "internal" not in done.stderr


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("Caf\u6771".encode(), 2, "the model has not learned "),
        (b"Caf\xe9", 2, "text: byte 4 is not UTF-8; write the text in UTF-8"),
    ],
)
def test_a_text_in_a_locale_without_utf_8(text: bytes, code: int, said: str, tmp_path: Path) -> None:
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    done = program(
        SPEAK, "generate", "--text", os.fsdecode(text), "-o", tmp_path / "none.wav", environment=plain
    )
    assert done.returncode == code
    assert said in done.stderr


@pytest.mark.parametrize("closed", ["mlx", "mlx/0.32.4/cpu"])
def test_mlx_gets_a_folder_of_its_own_where_another_user_has_the_usual_one(
    closed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mlx/0.32.4/cpu").mkdir(parents=True)
    for name in start.TEMPORARY[1:]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    start._leave_folder_of_another_user()
    assert os.environ["TMPDIR"] == str(tmp_path)
    monkeypatch.setattr(start.os, "access", lambda place, mode: place != str(tmp_path / closed))
    start._leave_folder_of_another_user()
    own = tmp_path / f"mlx-port-{os.getuid()}"
    assert os.environ["TMPDIR"] == str(own)
    assert own.stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    own.chmod(0o777)
    start._leave_folder_of_another_user()
    assert os.environ["TMPDIR"] == str(tmp_path), "anybody could put a library there"

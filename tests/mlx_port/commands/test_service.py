"""`mlx-port service`: the files of launchd and systemd. Neither manager is run."""

import configparser
import plistlib
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from mlx_port.commands import service
from mlx_port.commands.serve.command import serve
from tests.mlx_port.commands.running import run

KEY = 'a"b\\c%d$e f'


@pytest.fixture(autouse=True, params=["linux", "darwin"])
def system(request, monkeypatch, tmp_path):
    monkeypatch.setattr(service.sys, "platform", request.param)
    monkeypatch.setenv("HOME", str(tmp_path / "ho me"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for name in service.PASSED_ON:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLX_PORT_API_KEY", KEY)
    (tmp_path / "my dia").mkdir()
    monkeypatch.chdir(tmp_path)
    return request.param


def read(place: Path) -> tuple[list[str], dict[str, str]]:
    """Read the command and the variables of a file, as its service manager would."""
    if place.suffix == ".plist":
        agent = plistlib.loads(place.read_bytes())
        assert agent["KeepAlive"] == {"SuccessfulExit": False}
        return agent["ProgramArguments"], agent["EnvironmentVariables"]
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]
    unit.read(place)
    words = [word.replace("%%", "%") for word in shlex.split(unit["Service"]["ExecStart"])]
    [variable] = shlex.split(unit["Service"]["Environment"])
    name, _, value = variable.partition("=")
    return [word.replace("$$", "$") for word in words], {name: value.replace("%%", "%")}


def test_the_file_has_absolute_paths_and_the_variables(capsys, tmp_path):
    given = ["--model", "my dia", "--model=my dia", "--model", "Qwen/Qwen3-TTS", "--port", "9000"]
    code, out, err = run(capsys, "service", "install", *given)
    place = service.service_file()
    assert (code, err) == (0, "")
    assert out == f"{place}: written; start it now and at every login:\n  {service.start(place)}\n"
    command, variables = read(place)
    folder = str(tmp_path / "my dia")
    wanted = ["--model", folder, f"--model={folder}", "--model", "Qwen/Qwen3-TTS", "--port", "9000"]
    assert command == [*service.program(), "serve", *wanted]
    assert Path(command[0]).is_absolute()
    assert variables == {"MLX_PORT_API_KEY": KEY}
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert list(place.parent.iterdir()) == [place]


def test_a_second_install_replaces_the_first(capsys):
    run(capsys, "service", "install")
    assert run(capsys, "service", "install", "--port", "9001")[0] == 0
    assert read(service.service_file())[0][-2:] == ["--port", "9001"]


def test_a_dry_run_writes_nothing(capsys):
    shown = run(capsys, "service", "install", "--dry-run", "--port", "9000")[1]
    assert not service.service_file().exists()
    run(capsys, "service", "install", "--port", "9000")
    assert shown == service.service_file().read_text()


def test_uninstall_removes_the_file(capsys):
    run(capsys, "service", "install")
    place = service.service_file()
    code, out, _ = run(capsys, "service", "uninstall")
    assert (code, out) == (
        0,
        f"{place}: removed; a server that still runs ends with:\n  {service.stop()}\n",
    )
    assert run(capsys, "service", "uninstall") == (
        3,
        "",
        f"error: service: {place} does not exist; nothing is installed\n",
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--prot", "9000"], "--prot: no such flag; did you mean --port?"),
        (["--port", "x"], "--port"),
        (["--cors", "example.org"], "cors: 'example.org' is no origin"),
    ],
)
def test_flags_that_serve_refuses_are_refused(capsys, flags, message):
    code, _, err = run(capsys, "service", "install", *flags)
    assert code == 2
    assert err.startswith(f"error: {message}")
    assert not service.service_file().exists()


def test_a_command_is_missing(capsys):
    code, _, err = run(capsys, "service")
    assert (code, err.splitlines()) == (
        2,
        ["error: command missing; choose one of install, uninstall; see mlx-port service --help"],
    )


def test_another_system_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(service.sys, "platform", "win32")
    code, _, err = run(capsys, "service", "install")
    assert (code, err[:43]) == (2, "error: service: win32 has neither launchd n")


def test_control_characters_are_refused(capsys):
    code, _, err = run(capsys, "service", "install", "--model", "a\nExecStart=/bin/evil")
    assert (code, err[:30]) == (2, "error: service: 'a\\nExecStart=")
    assert not service.service_file().exists()


def test_without_the_script_python_starts_it(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert service.program()[:2] == [str(tmp_path / "python"), "-c"]


def test_systemd_reads_the_unit(capsys, system):
    if system != "linux" or shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze, of systemd")
    run(capsys, "service", "install", "--model", "my dia")
    told = subprocess.run(
        ["systemd-analyze", "verify", service.service_file()], capture_output=True, text=True, timeout=60
    )
    assert (told.returncode, told.stderr) == (0, "")


def test_the_drain_of_serve_fits_in(system):
    drain = next(each for each in serve.params if each.name == "drain_seconds").default
    assert isinstance(drain, float)
    assert drain < service.DRAIN

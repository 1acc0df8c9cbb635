"""`mlx-port service`: run `mlx-port serve` at login, by launchd on a Mac and by systemd elsewhere."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import click

from tts_core.errors import NotFoundError, UsageError
from tts_core.printable import lines

LABEL = "org.mlx-port.serve"
FOLDERS = ("--model", "--voices")  # flags of serve whose value may be a folder
# a service manager starts the server without the variables of a shell
PASSED_ON = (
    "HF_HOME",
    "HF_ENDPOINT",
    "HF_HUB_OFFLINE",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "MLX_PORT_API_KEY",
)
DRAIN = 40  # seconds until the server is killed; `serve --drain` is 30
UNIT = """\
[Unit]
Description=mlx-port serve
After=network.target

[Service]
{environment}ExecStart={command}
Restart=on-failure
TimeoutStopSec={drain}
NoNewPrivileges=true

[Install]
WantedBy=default.target
"""


@click.group(invoke_without_command=True)
@click.pass_context
def service(context: click.Context) -> None:
    """Run `mlx-port serve` at login, by launchd or systemd."""
    if context.invoked_subcommand is None:
        context.fail("command missing; choose one of install, uninstall; see mlx-port service --help")


@service.command(context_settings={"ignore_unknown_options": True})
@click.argument("flags", metavar="[FLAGS OF SERVE]...", nargs=-1, type=click.UNPROCESSED)
@click.option("--dry-run", is_flag=True, help="Print the file; write nothing.")
def install(flags: tuple[str, ...], dry_run: bool) -> None:
    """Write the service's file, with absolute paths, and print the command that starts it.

    FLAGS: those of `mlx-port serve`, as in `mlx-port service install --model dia --port 8000`. Variables
    such as HF_HOME and MLX_PORT_API_KEY are kept in the file as they are now; only its owner can read it.
    """
    from mlx_port.commands.serve.command import read_settings, serve

    given = serve.make_context("serve", [*flags]).params
    read_settings({name: value for name, value in given.items() if name != "quiet"})  # refuses as serve does
    command = [*program(), "serve", *absolute(flags)]
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    for word in (*command, *environment.values()):
        if not word.isprintable():
            raise UsageError(f"service: {word!r} contains a control character; leave it out")
    written = plist(command, environment) if is_mac() else unit(command, environment)
    if dry_run:
        click.echo(lines(written.rstrip("\n")))
        return
    path = service_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.touch(mode=0o600)
    fresh.write_text(written, encoding="utf-8")
    os.replace(fresh, path)
    click.echo(lines(f"{path}: written; start it now and at every login:\n  {start(path)}"))


@service.command()
def uninstall() -> None:
    """Remove the service's file, and print the command that stops a server that runs."""
    path = service_file()
    if not path.exists():
        raise NotFoundError(f"service: {path} does not exist; nothing is installed")
    path.unlink()
    (path.parent / "default.target.wants" / path.name).unlink(missing_ok=True)  # of systemctl enable
    click.echo(lines(f"{path}: removed; a server that still runs ends with:\n  {stop()}"))


def is_mac() -> bool:
    """Return True on macOS, False on Linux. Raises UsageError elsewhere."""
    if sys.platform not in ("darwin", "linux"):
        raise UsageError(
            f"service: {sys.platform} has neither launchd nor systemd; run mlx-port serve yourself"
        )
    return sys.platform == "darwin"


def service_file() -> Path:
    """Return the file's path: a launch agent, or a unit of the user's systemd."""
    if is_mac():
        return Path.home() / f"Library/LaunchAgents/{LABEL}.plist"
    config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(config, "systemd/user/mlx-port.service")


def start(path: Path) -> str:
    """Write the command that starts the service now and at every login. path: its file."""
    if is_mac():
        return f"launchctl bootstrap gui/{os.getuid()} {shlex.quote(str(path))}"
    return "systemctl --user daemon-reload && systemctl --user enable --now mlx-port"


def stop() -> str:
    """Write the command that stops the service."""
    if is_mac():
        return f"launchctl bootout gui/{os.getuid()}/{LABEL}"
    return "systemctl --user stop mlx-port; systemctl --user daemon-reload"


def program() -> list[str]:
    """Return the command that starts mlx-port with this Python, as absolute paths."""
    script = Path(sys.executable).with_name("mlx-port")
    if script.exists():
        return [str(script)]
    return [sys.executable, "-c", "from mlx_port.commands.start import main; main()"]


def absolute(flags: tuple[str, ...]) -> list[str]:
    """Make folders absolute in the flags of serve; a hub id, which names no folder, stays as it is."""
    written, before = [], ""
    for flag in flags:
        name, mark, value = flag.partition("=")
        if before in FOLDERS and Path(flag).exists():
            flag = os.path.abspath(flag)
        elif mark and name in FOLDERS and Path(value).exists():
            flag = f"{name}={os.path.abspath(value)}"
        written.append(flag)
        before = flag
    return written


def plist(command: list[str], environment: dict[str, str]) -> str:
    """Write a launch agent (launchd.plist(5))."""
    import plistlib

    agent = {
        "Label": LABEL,
        "ProgramArguments": command,
        "EnvironmentVariables": environment,
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ExitTimeOut": DRAIN,
        "StandardErrorPath": str(Path.home() / "Library/Logs/mlx-port.log"),
    }
    return plistlib.dumps(agent, sort_keys=False).decode().replace("\t", "  ")


def unit(command: list[str], environment: dict[str, str]) -> str:
    """Write a unit of systemd (systemd.service(5))."""
    variables = "".join(
        f"Environment={quoted(f'{name}={value}', dollar='$')}\n" for name, value in environment.items()
    )
    return UNIT.format(command=" ".join(map(quoted, command)), environment=variables, drain=DRAIN)


def quoted(text: str, dollar: str = "$$") -> str:
    """Quote a word for systemd, which replaces %, and $ in commands only."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", dollar)
    return f'"{escaped}"'

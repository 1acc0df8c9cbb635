"""Run a click command as a program: every error is one line on stderr and an exit code."""

from __future__ import annotations

import contextlib
import io
import logging
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import NoReturn

import click

from tts_core.errors import explain, flag_of
from tts_core.printable import LineFormatter, lines, one_line


def leave(command: click.Command, arguments: Sequence[str], name: str | None = None) -> NoReturn:
    """Run a click command as a program and exit. name: the program's name in its help."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds the stack, so that files are cleaned up
    _guard_terminal()
    sys.exit(run(command, arguments, debug="--debug" in arguments, name=name))


def run(command: click.Command, arguments: Sequence[str], *, debug: bool, name: str | None = None) -> int:
    """Run a click command and return its exit code; every error is one line on stderr.

    0 success, 1 a check failed (verify, doctor), 2 usage, 3 not found or not downloaded, 4 bad or unsafe
    checkpoint, 5 not enough memory or disk, 6 generation failed, 7 some rows of a batch failed,
    130 interrupted, 141 closed output pipe, 143 SIGTERM.  debug: print a traceback above the line.
    """
    try:
        result = command.main(list(arguments), prog_name=name or command.name, standalone_mode=False)
    except SystemExit as end:  # click exits with 1 if a pipe is closed
        return 141 if end.code == 1 else int(end.code or 0)
    except (click.Abort, KeyboardInterrupt):
        return _complain(130, "interrupted")
    except click.ClickException as fault:
        from tts_core.command.usage import usage_line

        return _complain(2, usage_line(fault))
    except Exception as fault:
        if debug:
            import traceback

            with contextlib.suppress(OSError):  # a full disk or a closed pipe: the exit code remains
                click.echo(lines(traceback.format_exc()), err=True, nl=False)
        return _complain(*explain(fault, flag_of))
    return result if isinstance(result, int) else 0


def _complain(code: int, message: str) -> int:
    with contextlib.suppress(OSError):  # as above
        click.echo(f"error: {one_line(message)}", err=True)
    return code


def _guard_terminal() -> None:
    """Make logs and warnings single safe lines; a character that the terminal lacks is no error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(LineFormatter())

    def show(message: Warning | str, category: type[Warning], *_: object) -> None:
        click.echo(f"warning: {one_line(f'{category.__name__}: {message}')}", err=True)

    warnings.showwarning = show

"""The `mlx-port` command. Each sub-command is imported when it is called, so that --help prints at once."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Sequence

import click

from tts_core.errors import explain
from tts_core.models import NAMES

COMMANDS = {
    "generate": ("mlx_port.commands.generate:generate", "Speak a text."),
    "convert": (
        "converters.cli:convert_weights",
        "Carry published weights over to MLX (also: convert-weights).",
    ),
    "verify": (
        "mlx_port.commands.verify.command:verify",
        "Compare a published checkpoint with its converted copy, layer by layer.",
    ),
    "estimate": (
        "mlx_port.commands.estimate:estimate",
        "Print the memory that a model takes on each backend.",
    ),
    "doctor": ("mlx_port.commands.doctor:doctor", "Say what this machine has, and whether it can speak."),
}


class LazyGroup(click.Group):
    """A group that knows its commands by where they are."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        return getattr(importlib.import_module(module), name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is meant, or what there is."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0]!r}; there are {', '.join(COMMANDS)}.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in --help, from the table: nothing is imported for it."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, help_text) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    help=f"Speech models, carried from PyTorch to MLX: {', '.join(NAMES)}.",
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda name: name.replace("_", "-"),  # --ref_audio is --ref-audio
    },
)
@click.version_option(package_name="mlx-port", message="%(package)s %(version)s")
def mlx_port() -> None:
    """Run a sub-command."""


def main() -> None:
    """Entry point of the `mlx-port` script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code.

    0 done, 1 a check failed (verify), 2 usage, 3 not found or no download, 4 bad or unsafe checkpoint, 5 not
    enough memory or disk, 6 generation failed, 130 interrupted, 141 the reader of our output has gone.
    An error is one line on stderr, with a traceback above it only where `--debug` is among the arguments.
    """
    try:
        result = mlx_port.main(list(arguments), prog_name="mlx-port", standalone_mode=False)
    except SystemExit:  # click's answer to a closed pipe
        return 141
    except (click.Abort, KeyboardInterrupt):
        return _complain(130, "interrupted")
    except click.exceptions.NoArgsIsHelpError:
        return _complain(2, f"command missing; there are {', '.join(COMMANDS)}; mlx-port --help tells more")
    except click.ClickException as error:
        return _complain(2, error.format_message())
    except Exception as error:
        if "--debug" in arguments:
            traceback.print_exc()
        return _complain(*explain(error))
    return result if isinstance(result, int) else 0


def _complain(code: int, message: str) -> int:
    click.echo(f"error: {' '.join(message.split())}", err=True)
    return code

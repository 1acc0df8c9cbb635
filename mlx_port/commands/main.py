"""The `mlx-port` command. Each sub-command is imported when it is called, so that --help prints at once."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import click

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

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse a call without a command: click would print all of the help."""
        if not args:
            ctx.fail(f"command missing; there are {', '.join(COMMANDS)}; mlx-port --help tells more")
        return super().parse_args(ctx, args)

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
    from converters.cli import leave

    leave(mlx_port, sys.argv[1:], "mlx-port")


def run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code (converters.cli.run)."""
    from converters import cli

    return cli.run(mlx_port, arguments, debug="--debug" in arguments, name="mlx-port")

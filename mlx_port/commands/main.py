"""The `mlx-port` command. Subcommands are imported when they are called, so --help is fast."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import click

from tts_core.command import runner
from tts_core.models import NAMES

COMMANDS = {
    "generate": ("mlx_port.commands.generate:generate", "Speak a text."),
    "convert": (
        "converters.cli:convert_weights",
        "Convert published weights to MLX (also: convert-weights).",
    ),
    "serve": ("mlx_port.commands.serve.command:serve", "Serve speech over HTTP with OpenAI's API."),
    "service": ("mlx_port.commands.service:service", "Run the server at login, by launchd or systemd."),
    "verify": (
        "mlx_port.commands.verify.command:verify",
        "Compare a published checkpoint with its converted copy, layer by layer.",
    ),
    "voices": (
        "mlx_port.commands.voices:voices",
        "Keep voices by name, for generate and serve.",
    ),
    "cache": (
        "mlx_port.commands.cache:cache",
        "List and remove models that were converted by their hub ids.",
    ),
    "estimate": (
        "mlx_port.commands.estimate:estimate",
        "Estimate the peak memory of a model on each backend.",
    ),
    "bench": (
        "mlx_port.commands.bench.command:bench",
        "Time a model on this machine, or a server under load.",
    ),
    "batch": (
        "mlx_port.commands.batch.command:batch",
        "Speak many texts into a folder, resumably.",
    ),
    "judge": (
        "mlx_port.commands.judge:judge",
        "Judge recordings: word errors, naturalness, likeness, silence.",
    ),
    "mcp": ("mlx_port.commands.mcp:mcp", "Let agents speak, in the Model Context Protocol."),
    "doctor": (
        "mlx_port.commands.doctor:doctor",
        "Report this machine, its limits and whether it can speak.",
    ),
}


class LazyGroup(click.Group):
    """A group that imports a command when it is needed."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse a call without a command in one line, and read `help NAME` as `NAME --help`."""
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        if not args and not ctx.resilient_parsing:  # completion parses what is there so far
            ctx.fail(f"command missing; choose one of {', '.join(COMMANDS)}; see mlx-port --help")
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List names in the order of COMMANDS."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        return getattr(importlib.import_module(module), name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list in --help from COMMANDS, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, help_text) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    help=f"Open text-to-speech models on MLX: {', '.join(NAMES)}.",
    context_settings={
        "help_option_names": ["-h", "--help"],
        "show_default": True,
        "token_normalize_func": lambda name: name.replace("_", "-"),  # --ref_audio is --ref-audio
    },
)
@click.version_option(package_name="mlx-port", message="%(package)s %(version)s")
def mlx_port() -> None:
    """Run a subcommand."""


def main() -> None:
    """Entry point of the `mlx-port` script."""
    runner.leave(mlx_port, sys.argv[1:], "mlx-port")


def run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code (tts_core.command.runner.run)."""
    return runner.run(mlx_port, arguments, debug="--debug" in arguments, name="mlx-port")

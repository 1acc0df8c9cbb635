"""Entry point of the `mlx-port` script."""

from __future__ import annotations


def main() -> None:
    """Import the command and run it."""
    from tts_core.command.start import start

    start("mlx_port.commands.main")

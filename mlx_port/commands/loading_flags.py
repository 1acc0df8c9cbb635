"""Flags that say how a model is loaded, of all commands that speak."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import click


@dataclass(frozen=True)
class Loading:
    """How a model is loaded. dtype, codec_precision: None is the default.

    bits, revision, offline: of a hub id, see mlx_port.load.
    """

    backend: Literal["mlx", "torch"] = "mlx"
    dtype: str | None = None
    codec_precision: str | None = None
    bits: int | None = None
    revision: str | None = None
    offline: bool = False


HUB_FLAGS = (
    click.option("--revision", metavar="REV", help="Branch, tag or commit of a hub id."),
    click.option("--offline", is_flag=True, help="Use what is on this machine only; no network."),
)


def hub_flags(command: Any) -> Any:
    """Add the flags of hub ids to a command."""
    for flag in reversed(HUB_FLAGS):
        command = flag(command)
    return command


def loading_flags(dtype: str) -> Callable[[Any], Any]:
    """Add the flags to a command. dtype: its default, for the help."""
    flags = (
        click.option("--backend", type=click.Choice(["mlx", "torch"]), default="mlx", help="Framework."),
        click.option(
            "--dtype",
            type=click.Choice(["float32", "bfloat16", "float16"]),
            help=f"Type of the weights.  [default: {dtype}]",
        ),
        click.option(
            "--codec-precision",
            type=click.Choice(["float32", "tf32", "bfloat16"]),
            help="Rounding of the codec's decoder; with --backend torch on CUDA.  [default: tf32 beside "
            "networks in half precision, else float32]",
        ),
        click.option(
            "--bits",
            type=click.Choice(["8", "4"]),
            help="Quantize the converted copy of a hub id, with so many bits per weight.",
        ),
        *HUB_FLAGS,
    )

    def add(command: Any) -> Any:
        for flag in reversed(flags):
            command = flag(command)
        return command

    return add


def loading(given: dict[str, Any]) -> Loading:
    """Take the values of the flags out of a command's. Raises click's UsageError where they do not fit."""
    names = ("backend", "dtype", "codec_precision", "revision", "offline")
    bits = given.pop("bits")
    made = Loading(**{name: given.pop(name) for name in names}, bits=None if bits is None else int(bits))
    if made.codec_precision is not None and made.backend == "mlx":
        raise click.UsageError("codec-precision: MLX has no such switch; omit it, or add --backend torch")
    return made

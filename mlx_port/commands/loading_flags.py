"""Flags that say how a model is loaded, of all commands that speak."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import click


@dataclass(frozen=True)
class Loading:
    """How a model is loaded. dtype, codec_precision: None is the default."""

    backend: Literal["mlx", "torch"] = "mlx"
    dtype: str | None = None
    codec_precision: str | None = None


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
    )

    def add(command: Any) -> Any:
        for flag in reversed(flags):
            command = flag(command)
        return command

    return add


def loading(given: dict[str, Any]) -> Loading:
    """Take the values of the flags out of a command's. Raises click's UsageError where they do not fit."""
    made = Loading(**{name: given.pop(name) for name in ("backend", "dtype", "codec_precision")})
    if made.codec_precision is not None and made.backend == "mlx":
        raise click.UsageError("codec-precision: MLX has no such switch; omit it, or add --backend torch")
    return made

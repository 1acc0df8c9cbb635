"""`mlx-port generate`: the flags. The work is in `speak`, imported when the command runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any, Literal

import click

from tts_core.models import NAMES
from tts_core.options import Info, info, options_class


@dataclass(frozen=True)
class Flags:
    """The flags of one call, as given; None is the default.

    options: those that set an option of the model, by the option's name.
    """

    text: str | None
    model: str | None
    backend: Literal["mlx", "torch"]
    dtype: str | None
    ref_audio: tuple[str, ...]
    ref_text: tuple[str, ...]
    options: dict[str, Any]
    output: str | None
    play: bool
    stream: bool
    as_json: bool
    quiet: bool


def option_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add a flag for every option of every model; models that share a name share its flag and its type."""
    found: dict[str, tuple[Info, str, dict[str, list[str]]]] = {}
    for model in NAMES:
        for field in fields(options_class(model)):
            known = info(field)
            if known.flags:
                helps = found.setdefault(field.name, (known, str(field.type), {}))[2]
                helps.setdefault(known.help, []).append(model)
    for name, (known, kind, helps) in reversed(found.items()):
        add = click.option(*known.flags, f"option_{name}", help=_help(helps), **_type(known, kind))
        command = add(command)
    return command


def _help(helps: Mapping[str, Sequence[str]]) -> str:
    """A flag's help. helps: each text, and the models that have it."""
    if len(helps) > 1:
        return " ".join(f"{', '.join(models)}: {text}" for text, models in helps.items())
    [(text, models)] = helps.items()
    return text if len(models) == len(NAMES) else f"{text} ({', '.join(models)})"


def _type(known: Info, kind: str) -> dict[str, Any]:
    """The arguments of `click.option` for an option of this type."""
    if kind.startswith("bool"):
        return {"is_flag": True, "default": None}
    if kind.startswith("int"):
        return {"type": int}
    if kind.startswith("float"):
        return {"type": float}
    return {"type": click.Choice(known.choices)}


@click.command(context_settings={"allow_extra_args": True})
@click.option(
    "-t", "--text", help="What to say; in Dia's, [S1] and [S2] begin a speaker's turn. '-' or none: stdin."
)
@click.option(
    "--model",
    metavar="PATH",
    help="Converted folder; with --backend torch any layout. None: the embedded voice.",
)
@click.option(
    "--backend", type=click.Choice(["mlx", "torch"]), default="mlx", show_default=True, help="What computes."
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "bfloat16", "float16"]),
    help="Of --model's weights while it runs. None: the folder's own; with torch the device's best.",
)
@click.option(
    "--ref-audio",
    metavar="FILE",
    multiple=True,
    help="Speech whose voice to take; again for each further recording.",
)
@click.option(
    "--ref-text",
    multiple=True,
    help="What is said in each --ref-audio, in the same order; Dia: with its tags.",
)
@option_flags
@click.option(
    "-o", "--output", metavar="FILE", help="WAV, FLAC or MP3.  [default: speech.wav, none with --play]"
)
@click.option("--play", is_flag=True, help="Play it; needs mlx-port[play].")
@click.option("--stream", is_flag=True, help="Write (WAV) and play each piece as soon as it is made.")
@click.option("--json", "as_json", is_flag=True, help="Report as JSON on stdout.")
@click.option("--quiet", is_flag=True, help="No progress, no report.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
@click.pass_context
def generate(context: click.Context, **given: Any) -> None:
    """Speak a text.

    Unset options take the model's defaults.
    """
    if context.args:
        raise click.UsageError(
            f'{len(context.args)} words come after the flags; put the text in quotes: --text "..."'
        )
    speak = import_module("mlx_port.commands.speak").speak
    options = {
        name.removeprefix("option_"): value
        for name, value in given.items()
        if name.startswith("option_") and value is not None
    }
    rest = {name: value for name, value in given.items() if not name.startswith("option_")}
    speak(Flags(options=options, **rest))

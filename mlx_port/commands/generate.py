"""`mlx-port generate`: the flags. `speak`, imported when the command runs, does the work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any, Literal

import click

from tts_core.models import NAMES
from tts_core.options import Info, info, options_class
from tts_core.printable import counted


@dataclass(frozen=True)
class Flags:
    """Flags of one call as given; None is the default.

    options: values of the model's options by name.
    """

    text: str | None
    model: str | None
    backend: Literal["mlx", "torch"]
    dtype: str | None
    check: bool
    voice: str | None
    ref_audio: tuple[str, ...]
    ref_text: tuple[str, ...]
    options: dict[str, Any]
    output: str | None
    form: str | None
    captions: str | None
    play: bool
    stream: bool
    show_pieces: bool
    as_json: bool
    quiet: bool


def option_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add a flag for every option of every model; options of the same name share a flag and its type."""
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


def chosen_options(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Divide a command's flags: the model's options that are given, by name, and all others."""
    prefix = "option_"
    options = {
        name.removeprefix(prefix): value
        for name, value in given.items()
        if name.startswith(prefix) and value is not None
    }
    return options, {name: value for name, value in given.items() if not name.startswith(prefix)}


def _help(helps: Mapping[str, Sequence[str]]) -> str:
    """Build a flag's help. helps: models by help text."""
    if len(helps) > 1:
        return " ".join(f"{', '.join(models)}: {text}" for text, models in helps.items())
    [(text, models)] = helps.items()
    return text if len(models) == len(NAMES) else f"{text} ({', '.join(models)})"


def _type(known: Info, kind: str) -> dict[str, Any]:
    """Arguments of `click.option` for an option of this type."""
    if kind.startswith("bool"):
        return {"is_flag": True, "default": None}
    if kind.startswith("int"):
        return {"type": int}
    if kind.startswith("float"):
        return {"type": float}
    return {"type": click.Choice(known.choices)}


@click.command(context_settings={"allow_extra_args": True})
@click.option("-t", "--text", help="Text to speak; in Dia's, [S1] and [S2] begin a turn. '-' or none: stdin.")
@click.option(
    "--model",
    metavar="PATH",
    help="Converted folder; with --backend torch also published files.  [default: the embedded voice]",
)
@click.option(
    "--backend", type=click.Choice(["mlx", "torch"]), default="mlx", show_default=True, help="Framework."
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "bfloat16", "float16"]),
    help="Type of the weights.  [default: the folder's; with --backend torch by device; "
    "embedded voice: float32]",
)
@click.option(
    "--check", is_flag=True, help="Compare --model's files with the hashes of their conversion first."
)
@click.option("--voice", metavar="NAME", help="Voice of this name: mlx-port voices lists and adds them.")
@click.option(
    "--ref-audio",
    metavar="FILE",
    multiple=True,
    help="Recording of the voice to use; repeat for several recordings.",
)
@click.option(
    "--ref-text",
    multiple=True,
    help="Transcript of each --ref-audio, in the same order; for Dia with tags.",
)
@option_flags
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="File .wav, .flac, .mp3, .opus, .aac or .pcm; '-': stdout, as the speech is generated.  [default: "
    "speech.wav, else speech-2.wav and so on; none with --play]",
)
@click.option("--format", "form", metavar="NAME", help="Format of '--output -'.  [default: wav]")
@click.option("--captions", metavar="FILE", help="SRT or VTT with the text of each piece and its times.")
@click.option("--play", is_flag=True, help="Play the speech; needs mlx-port[play].")
@click.option("--stream", is_flag=True, help="Write and play pieces as they are generated.")
@click.option("--show-pieces", is_flag=True, help="List the pieces of a long text, with their lengths.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--quiet", is_flag=True, help="Print no progress and no report.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
@click.pass_context
def generate(context: click.Context, **given: Any) -> None:
    """Speak a text.

    Options that are not given take the model's defaults.
    """
    if context.args:
        words = counted(len(context.args), "word")
        raise click.UsageError(f'text: {words} without a flag; put the whole text in quotes: --text "..."')
    for name in ("model", "voice", "output", "captions"):
        if given[name] == "":
            raise click.UsageError(f"{name}: empty; give a name, or leave --{name} out")
    speak = import_module("mlx_port.commands.speak").speak
    options, rest = chosen_options(given)
    speak(Flags(options=options, **rest))

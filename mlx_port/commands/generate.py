"""`mlx-port generate`: the flags. `speak`, imported when the command runs, does the work."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from mlx_port.commands.generate_flags import GenerateFlags
from mlx_port.commands.loading_flags import loading, loading_flags
from mlx_port.commands.model_flags import ModelCommand, chosen_options, option_flags
from tts_core.audio.formats.names import SUFFIXES
from tts_core.printable import counted, either


@click.command(cls=ModelCommand)
@click.argument("words", metavar="[TEXT]", nargs=-1)
@click.option("-t", "--text", help="TEXT by a flag.  [default: stdin, as '-']")
@click.option(
    "--model",
    metavar="MODEL",
    help="Hub id, as nari-labs/Dia-1.6B-0626, fetched and converted on first use, or converted folder; "
    "with --backend torch also published files.  [default: the embedded voice]",
)
@loading_flags("the folder's; with --backend torch by device; embedded voice: float32")
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
    help=f"File {either(SUFFIXES)}; '-': stdout, as the speech is generated.  [default: "
    "speech.wav, else speech-2.wav and so on; none with --play]",
)
@click.option("--format", "form", metavar="NAME", help="Format of '--output -'.  [default: wav]")
@click.option("--captions", metavar="FILE", help="SRT or VTT with the text of each piece and its times.")
@click.option("--play", is_flag=True, help="Play the speech; needs the extra play.")
@click.option("--stream", is_flag=True, help="Write and play pieces as they are generated.")
@click.option("--show-pieces", is_flag=True, help="List the pieces of a long text, with their lengths.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--quiet", is_flag=True, help="Print no progress and no report.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def generate(**given: Any) -> None:
    """Speak TEXT.

    In Dia's texts, [S1] and [S2] begin a turn. Options that are not given take the model's defaults.
    """
    words, text = given.pop("words"), given.pop("text")
    if len(words) > (text is None):
        found = counted(len(words), "word") + ("" if text is None else " besides --text")
        raise click.UsageError(f'text: {found}; put the whole text in quotes: mlx-port generate "..."')
    text = words[0] if words else text
    for name in ("model", "voice", "output", "captions"):
        if given[name] == "":
            raise click.UsageError(f"{name}: empty; give a name, or leave --{name} out")
    speak = import_module("mlx_port.commands.speak").speak
    options, rest = chosen_options(given)
    speak(GenerateFlags(text, loading=loading(rest), options=options, **rest))

"""`mlx-port generate`: the flags. What they do is in commands/speak, imported when the command runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import click


@dataclass(frozen=True)
class Wish:
    """The flags of one call, as given; None is the model's own value."""

    text: str | None
    model: str | None
    backend: Literal["mlx", "torch"]
    dtype: str | None
    ref_audio: str | None
    ref_text: str | None
    deep: bool | None
    decoder: str | None
    as_written: bool | None
    timesteps: int | None
    set: tuple[str, ...] | None  # name=value
    piece_seconds: float | None
    cfg_scale: float | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    seed: int | None
    max_seconds: float | None
    output: str | None
    play: bool
    stream: bool
    as_json: bool
    quiet: bool


# flags that only some models take: those that the model's commands/<model>.FLAGS does not name are refused
OWN = ("ref_text", "deep", "decoder", "as_written", "timesteps", "set", "piece_seconds", "max_seconds")


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
@click.option("--ref-audio", metavar="FILE", help="Speech whose voice to take. Dia needs --ref-text with it.")
@click.option("--ref-text", help="What is said in --ref-audio; Dia: with its tags. (Dia, MARS5)")
@click.option(
    "--deep/--shallow",
    default=None,
    help="Read the reference's words too, or take its voice alone. (MARS5)  [default: deep with --ref-text]",
)
@click.option(
    "--decoder",
    type=click.Choice(["vocos", "mbd"]),
    help="What makes the waveform; mbd's weights are CC-BY-NC. (MetaVoice)  [default: vocos]",
)
@click.option(
    "--as-written",
    is_flag=True,
    default=None,
    help="Do not spell numbers and abbreviations out. (MARS5, MetaVoice)",
)
@click.option("--timesteps", type=int, help="Steps of the diffusion.  (MARS5)  [default: 200]")
@click.option(
    "--set",
    multiple=True,
    metavar="NAME=VALUE",
    callback=lambda _context, _option, given: given or None,
    help="A setting of the original's InferenceConfig, as freq_penalty=2; again for each. (MARS5)",
)
@click.option(
    "--cfg-scale", "--guidance", type=float, help="Guidance; the scale that turns it off is the model's."
)
@click.option("--temperature", "--temp", type=float, help="0 always takes the likeliest code.")
@click.option("--top-p", type=float, help="Keep the likeliest codes that hold this probability.")
@click.option("--top-k", type=int, help="Keep this many codes; 0 keeps all.")
@click.option(
    "--seed",
    type=click.IntRange(0, 2**64 - 1),
    help="The same seed gives the same speech. None: a fresh one.",
)
@click.option(
    "--piece-seconds",
    type=float,
    help="How long a piece of a long text may be; 0 does not cut. (Dia, MARS5)  [default: by the model]",
)
@click.option("--max-seconds", type=float, help="Stop after this much speech.")
@click.option(
    "-o", "--output", metavar="FILE", help="WAV, FLAC or MP3.  [default: speech.wav, none with --play]"
)
@click.option("--play", is_flag=True, help="Play it; needs mlx-port[play].")
@click.option("--stream", is_flag=True, help="Write (WAV) and play each piece as soon as it is made.")
@click.option("--json", "as_json", is_flag=True, help="Report as JSON on stdout.")
@click.option("--quiet", is_flag=True, help="No progress, no report.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
@click.pass_context
def generate(context: click.Context, **flags: Any) -> None:
    """Speak a text.

    Unset sampling flags take the model's defaults.
    """
    if context.args:
        raise click.UsageError(
            f'{len(context.args)} words stand after the flags; put the text in quotes: --text "..."'
        )
    from mlx_port.commands.speak import speak

    speak(Wish(**flags))

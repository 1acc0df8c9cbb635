"""What MARS5 makes of the flags of `mlx-port generate`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import click

from mlx_port.commands.generate import Wish
from tts_core.audio.files import read_audio
from tts_core.codecs.encodec import EncodecConfig
from tts_core.errors import UsageError
from tts_core.mars5.options import PIECE_SECONDS, Mars5Options
from tts_core.mars5.reference import as_spoken
from tts_core.mars5.request import cut
from tts_core.prompt import Prompt
from tts_core.text.checks import check_one_speaker, check_words
from tts_core.text.sentences import CHARACTERS_PER_SECOND

FLAGS = frozenset({"ref_text", "deep", "as_written", "timesteps", "set", "piece_seconds"})
HAVE_FLAGS = {  # settings, of the original or of ours, that a flag of this command sets
    "temperature": "--temperature",
    "top_k": "--top-k",
    "top_p": "--top-p",
    "cfg_scale": "--cfg-scale",
    "timesteps": "--timesteps",
    "deep_clone": "--deep or --shallow",
    "seed": "--seed",
    "as_written": "--as-written",
    "piece_seconds": "--piece-seconds",
}
GIVEN = "cfg_scale", "temperature", "top_k", "top_p", "timesteps", "seed"
FIXED = {"use_kv_cache": "is always on", "beam_width": "is always 1"}
SHORTEST = 1.0  # seconds of reference


def plan(wish: Wish, text: str, configs: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """The sample rate in Hz, and the arguments of Mars5Pipeline.stream beside the text. Raises UsageError."""
    check_reference_flags(wish)
    given: dict[str, Any] = {name: getattr(wish, name) for name in GIVEN if getattr(wish, name) is not None}
    given |= read_settings(wish.set or ())
    most = PIECE_SECONDS if wish.piece_seconds is None else wish.piece_seconds or None
    options = Mars5Options(
        **given,
        deep_clone=wish.deep,
        as_written=bool(wish.as_written),
        piece_seconds=most,
    )
    check_words("text", text)
    check_one_speaker(text, "MARS5")
    prompt = read_prompt(wish, configs["encodec"], options)
    pieces = cut(text if wish.as_written else as_spoken(text), most)
    if not wish.quiet:
        announce(pieces)
    return configs["vocos"].sample_rate, {"prompt": prompt, "options": options}


def read_settings(given: Sequence[str]) -> dict[str, int | float]:
    """NAME=VALUE each → fields of Mars5Options. Raises UsageError for any that --set does not set."""
    made: dict[str, int | float] = {}
    kinds = {
        field.name: field.type
        for field in fields(Mars5Options)
        if field.name not in HAVE_FLAGS and field.type in ("int", "float")
    }
    for pair in given:
        name, _, value = pair.partition("=")
        name = name.strip().replace("-", "_")
        if name in HAVE_FLAGS:
            raise UsageError(f"set: {name} has a flag of its own; give {HAVE_FLAGS[name]}")
        if name in FIXED:
            raise UsageError(f"set: {name} {FIXED[name]}; leave it out")
        if name not in kinds:
            close = difflib.get_close_matches(name, kinds, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(kinds)}"
            raise UsageError(f"set: {name} is no setting of MARS5; {hint}")
        if name in made:
            raise UsageError(f"set: {name} is given twice; give it once")
        try:
            made[name] = int(value) if kinds[name] == "int" else float(value)
        except ValueError:
            whole = "whole " if kinds[name] == "int" else ""
            raise UsageError(f"set: {name} takes a {whole}number, as {name}={_example(name)}") from None
    return made


def _example(name: str) -> float:
    return getattr(Mars5Options(), name)


def check_reference_flags(wish: Wish) -> None:
    """A reference, and its words where they are needed."""
    if wish.ref_audio is None:
        raise UsageError(
            "ref-audio: missing; MARS5 speaks with the voice of a reference, 5 to 10 s of speech"
        )
    if wish.deep and wish.ref_text is None:
        raise UsageError(
            "deep: --ref-text is missing; a deep clone reads what the reference says, and nothing here "
            "transcribes it for you; give it, or use --shallow"
        )
    if wish.ref_text is not None:
        check_words("ref-text", wish.ref_text)


def read_prompt(wish: Wish, codec: EncodecConfig, options: Mars5Options) -> Prompt:
    """The reference, decoded at the codec's rate."""
    assert wish.ref_audio is not None
    samples = read_audio(wish.ref_audio, codec.sample_rate)
    seconds = len(samples) / codec.sample_rate
    if not SHORTEST <= seconds <= options.max_prompt_dur:
        raise UsageError(
            f"ref-audio: {seconds:.1f} s long; give {SHORTEST:g} to {options.max_prompt_dur:g} s of speech, "
            "best 5 to 10"
        )
    if not samples.any():
        raise UsageError("ref-audio: nothing is to be heard in it; give 5 to 10 s of speech")
    return Prompt.of(audio=samples, text=wish.ref_text)


def announce(pieces: Sequence[str]) -> None:
    """For a long text, say on stderr into how many pieces it goes; never what they say."""
    if len(pieces) > 1:
        seconds = sum(map(len, pieces)) / CHARACTERS_PER_SECOND
        click.echo(f"{len(pieces)} pieces, about {seconds:.0f} s of speech", err=True)

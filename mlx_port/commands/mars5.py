"""What MARS5 makes of the flags of `mlx-port generate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import click

from mlx_port.commands.generate import Wish
from tts_core.audio.files import read_audio
from tts_core.codecs.encodec import EncodecConfig
from tts_core.errors import UsageError, did_you_mean
from tts_core.mars5.request import PIECE_SECONDS, as_spoken, choose_settings, cut
from tts_core.mars5.sampling import Mars5Settings
from tts_core.prompt import Prompt
from tts_core.text.checks import check_one_speaker, check_words
from tts_core.text.sentences import CHARACTERS_PER_SECOND

FLAGS = frozenset({"ref_text", "deep", "as_written", "timesteps", "set", "piece_seconds"})
HAVE_FLAGS = {  # settings, of the original or of ours, that a flag of this command sets
    "temperature": "--temperature",
    "top_k": "--top-k",
    "top_p": "--top-p",
    "nar_guidance_w": "--cfg-scale",
    "timesteps": "--timesteps",
    "deep_clone": "--deep or --shallow",
}
FIXED = {"use_kv_cache": "is always on", "beam_width": "is always 1"}
SHORTEST = 1.0  # seconds of reference


def plan(wish: Wish, text: str, configs: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """The sample rate in Hz, and the arguments of Mars5Pipeline.stream beside the text. Raises UsageError."""
    check_reference_flags(wish)
    flags = {name: getattr(wish, name) for name in ("temperature", "top_k", "top_p", "timesteps")}
    settings = choose_settings(None, wish.cfg_scale, flags | read_settings(wish.set or ()))
    check_words("text", text)
    check_one_speaker(text, "MARS5")
    prompt = read_prompt(wish, configs["encodec"], settings)
    most = PIECE_SECONDS if wish.piece_seconds is None else wish.piece_seconds or None
    pieces = cut(text if wish.as_written else as_spoken(text), most)
    if not wish.quiet:
        announce(pieces)
    return configs["vocos"].sample_rate, {
        "prompt": prompt,
        "deep_clone": wish.deep,
        "settings": settings,
        "as_written": bool(wish.as_written),
        "piece_seconds": most,
        "seed": wish.seed,
    }


def read_settings(given: Sequence[str]) -> dict[str, int | float]:
    """NAME=VALUE each → fields of Mars5Settings. Raises UsageError for any that --set does not set."""
    made: dict[str, int | float] = {}
    kinds = {field.name: field.type for field in fields(Mars5Settings) if field.name not in HAVE_FLAGS}
    for pair in given:
        name, _, value = pair.partition("=")
        name = name.strip().replace("-", "_")
        if name in HAVE_FLAGS:
            raise UsageError(f"set: {name} has a flag of its own; give {HAVE_FLAGS[name]}")
        if name in FIXED:
            raise UsageError(f"set: {name} {FIXED[name]}; leave it out")
        if name not in kinds:
            hint = did_you_mean(name, kinds) or f"it takes {', '.join(sorted(kinds))}"
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
    return getattr(Mars5Settings(), name)


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


def read_prompt(wish: Wish, codec: EncodecConfig, settings: Mars5Settings) -> Prompt:
    """The reference, decoded at the codec's rate."""
    assert wish.ref_audio is not None
    samples = read_audio(wish.ref_audio, codec.sample_rate)
    seconds = len(samples) / codec.sample_rate
    if not SHORTEST <= seconds <= settings.max_prompt_dur:
        raise UsageError(
            f"ref-audio: {seconds:.1f} s long; give {SHORTEST:g} to {settings.max_prompt_dur:g} s of speech, "
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

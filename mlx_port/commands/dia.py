"""What Dia makes of the flags of `mlx-port generate`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import click

from mlx_port.commands.generate import Wish
from tts_core.audio.files import read_audio
from tts_core.codecs.dac import DacConfig
from tts_core.dia.config import DiaConfig
from tts_core.dia.long_text import cut_text
from tts_core.dia.text import prepare
from tts_core.errors import UsageError
from tts_core.prompt import Prompt

FLAGS = frozenset({"ref_text", "piece_seconds", "max_seconds"})


def plan(wish: Wish, text: str, configs: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """The sample rate in Hz, and the arguments of DiaPipeline.stream beside the text. Raises UsageError."""
    config, codec = configs["dia"], configs["dac"]
    check_reference_flags(wish)
    check_sampling(wish, config)
    prepare(text, None, transcript=wish.ref_text)
    prompt, cut = read_prompt(wish, config, codec), piece_seconds(wish)
    pieces = cut_text(config, codec, text, prompt, **cut)
    max_frames = count_frames(wish.max_seconds, config, codec, pieces=len(pieces))
    if len(pieces) > 1 and not wish.quiet:
        seconds = sum(piece.seconds for piece in pieces)
        click.echo(f"{len(pieces)} pieces, about {seconds:.0f} s of speech", err=True)
    return codec.sample_rate, {
        "prompt": prompt,
        "temperature": wish.temperature,
        "cfg_scale": wish.cfg_scale,
        "top_k": wish.top_k,
        "top_p": wish.top_p,
        "max_frames": max_frames,
        "seed": wish.seed,
        **({} if wish.piece_seconds is None else cut),
    }


def piece_seconds(wish: Wish) -> dict[str, float | Literal["auto"] | None]:
    """The argument of cut_text and of the pipeline; 0 is no piece at all."""
    return {"piece_seconds": "auto" if wish.piece_seconds is None else wish.piece_seconds or None}


def check_reference_flags(wish: Wish) -> None:
    """Both flags of a reference, or neither."""
    if wish.ref_audio is not None and wish.ref_text is None:
        raise UsageError(
            "ref-audio: --ref-text is missing; the model reads what the reference says before it goes on, "
            "and nothing here transcribes it for you"
        )
    if wish.ref_text is not None and wish.ref_audio is None:
        raise UsageError("ref-text: --ref-audio is missing; give the speech that it transcribes")


def check_sampling(wish: Wish, config: DiaConfig) -> None:
    """Ranges of the sampling flags; Sampling itself knows them."""
    given = {name: getattr(wish, name) for name in ("cfg_scale", "temperature", "top_p", "top_k")}
    replace(config.sampling, **{name: value for name, value in given.items() if value is not None})


def read_prompt(wish: Wish, config: DiaConfig, codec: DacConfig) -> Prompt | None:
    """The reference, decoded at the codec's rate."""
    if wish.ref_audio is None or wish.ref_text is None:
        return None
    samples = read_audio(wish.ref_audio, codec.sample_rate)
    if len(samples) > (config.max_frames - 1) * codec.hop_length:
        raise UsageError(
            f"ref-audio: {len(samples) / codec.sample_rate:.1f} s leave no room for speech; this model holds "
            f"{config.max_frames / codec.frame_rate:.1f} s, reference included; give 5 to 10 s"
        )
    return Prompt.of(text=wish.ref_text, audio=samples)


def count_frames(
    max_seconds: float | None, config: DiaConfig, codec: DacConfig, *, pieces: int
) -> int | None:
    """Frames that make up the wished seconds, rounded up; a text in pieces may have any number."""
    if max_seconds is None:
        return None
    if not (math.isfinite(max_seconds) and max_seconds > 0):
        raise UsageError(f"max-seconds: {max_seconds} is not a number above 0")
    frames = math.ceil(max_seconds * codec.frame_rate)
    if pieces == 1 and frames > config.max_frames:
        raise UsageError(
            f"max-seconds: {max_seconds:g} is more than this model can make, "
            f"{config.max_frames / codec.frame_rate:.1f}"
        )
    return frames

"""What MetaVoice makes of the flags of `mlx-port generate`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mlx_port.commands.generate import Wish
from tts_core.audio.files import read_audio
from tts_core.errors import UsageError
from tts_core.metavoice.request import (
    LEAST_SECONDS,
    check_decoder,
    choose_sampling,
    too_short,
)
from tts_core.metavoice.text import normalise
from tts_core.prompt import Prompt
from tts_core.text.checks import check_one_speaker, check_words
from tts_core.text.spoken import spoken

FLAGS = frozenset({"decoder", "as_written", "max_seconds"})


def plan(wish: Wish, text: str, configs: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """The sample rate in Hz, and the arguments of MetaVoicePipeline.stream beside the text. Raises
    UsageError.
    """
    vocoder, as_written = configs["vocos"], bool(wish.as_written)
    decoder = wish.decoder or "vocos"
    check_decoder(decoder, ["vocos", *(["mbd"] if "mbd" in configs else [])])
    choose_sampling(wish.cfg_scale, wish.temperature, wish.top_k, wish.top_p)
    check_words("text", text)
    check_one_speaker(text, "MetaVoice")
    normalise(text if as_written else spoken(text))
    return vocoder.sample_rate, {
        "prompt": read_prompt(wish.ref_audio, vocoder.sample_rate),
        "cfg_scale": wish.cfg_scale,
        "temperature": wish.temperature,
        "top_k": wish.top_k,
        "top_p": wish.top_p,
        "decoder": decoder,
        "as_written": as_written,
        "max_frames": count_frames(wish.max_seconds, vocoder.sample_rate / vocoder.hop_length),
        "seed": wish.seed,
    }


def read_prompt(file: str | None, sample_rate: int) -> Prompt:
    """The voice, decoded at the model's rate."""
    if file is None:
        raise UsageError(
            "ref-audio: MetaVoice speaks with the voice of a reference; give --ref-audio, 30 s of speech"
        )
    samples = read_audio(file, sample_rate)
    if len(samples) < LEAST_SECONDS * sample_rate:
        raise too_short("ref-audio", len(samples) / sample_rate)
    if not samples.any():
        raise UsageError("ref-audio: nothing is to be heard in it; give 30 s of clear speech")
    return Prompt.of(audio=samples)


def count_frames(max_seconds: float | None, frame_rate: float) -> int | None:
    """Frames that make up the wished seconds, rounded up."""
    if max_seconds is None:
        return None
    if not (math.isfinite(max_seconds) and max_seconds > 0):
        raise UsageError(f"max-seconds: {max_seconds} is not a number above 0")
    return math.ceil(max_seconds * frame_rate)

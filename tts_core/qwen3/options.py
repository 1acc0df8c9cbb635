"""Options of Qwen3-TTS's generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tts_core.options import LONGEST_SECONDS, SharedChanges, SharedOptions, frames_option, option

if TYPE_CHECKING:
    from tts_core.nn.noise import Noise
else:
    Noise = object  # of Python only: no option's flag needs its module

Layouts = Literal["auto", "whole", "streamed"]
LAYOUTS = ("auto", "whole", "streamed")
PIECE_SECONDS = 24.0  # 300 frames, the pieces in which the original decodes


@dataclass(frozen=True)
class Qwen3Options(SharedOptions):
    """Options of a generation; None is the checkpoint's own. Raises UsageError for a value out of range."""

    voice: str | None = option(
        None, "Name of a built-in voice, of a model that has some.", flag=None, high=100
    )
    language: str = option(
        "auto", "Language of the text, such as english; auto leaves it to the model.", high=40
    )
    instruct: str | None = option(
        None, "How to speak, in words, such as: an old sailor, slow and warm.", high=10_000
    )
    temperature: float | None = option(
        None,
        "Sampling temperature of a frame's first code; 0 always takes the likeliest.",
        "--temp",
        low=0,
        high=100,
        zero_below=1e-5,
        note=" (0 is greedy)",
    )
    top_k: int | None = option(
        None,
        "Keep this many of the likeliest first codes; 0 keeps all.",
        low=0,
        high=1_000_000,
        note=" (0 keeps every id)",
    )
    top_p: float | None = option(
        None, "Keep the likeliest first codes up to this total probability.", above=0, high=1
    )
    repetition_penalty: float | None = option(
        None, "Divide the logits of first codes that were drawn before; 1 turns it off.", low=0.01, high=100
    )
    subtalker_temperature: float | None = option(
        None,
        "Sampling temperature of a frame's other codes; 0 always takes the likeliest.",
        low=0,
        high=100,
        zero_below=1e-5,
        note=" (0 is greedy)",
    )
    subtalker_top_k: int | None = option(
        None, "Keep this many of the likeliest other codes; 0 keeps all.", low=0, high=1_000_000
    )
    subtalker_top_p: float | None = option(
        None, "Keep the likeliest other codes up to this total probability.", above=0, high=1
    )
    layout: Layouts = option(
        "auto",
        "Read the text whole before speech, or streamed with its frames; auto is the original's choice for "
        "the kind of voice.",
        choices=LAYOUTS,
    )
    max_frames: int | Sequence[int] | None = frames_option()
    piece_seconds: float | None = option(
        PIECE_SECONDS,
        "Longest piece of a long text in seconds; 0 does not cut. A designed voice differs from piece to "
        "piece, so its text is never cut.",
        above=0,
        high=LONGEST_SECONDS,
        unset=0,
    )
    trust_transcript: bool = option(False, "Do not compare the transcript with the recording's length.")
    as_written: bool = option(False, "Read marks of pauses as text, as the original does.")
    noise: Noise | Sequence[Noise] | None = option(
        None, "Random numbers instead of the seed's.", flag=None, per_text=True
    )


class Qwen3Changes(SharedChanges, total=False):
    """The fields of Qwen3Options as keyword arguments."""

    voice: str | None
    """Name of a built-in voice, of a model that has some."""
    language: str
    """Language of the text, such as english; auto leaves it to the model."""
    instruct: str | None
    """How to speak, in words, such as: an old sailor, slow and warm."""
    temperature: float | None
    """Sampling temperature of a frame's first code; 0 always takes the likeliest."""
    top_k: int | None
    """Keep this many of the likeliest first codes; 0 keeps all."""
    top_p: float | None
    """Keep the likeliest first codes up to this total probability."""
    repetition_penalty: float | None
    """Divide the logits of first codes that were drawn before; 1 turns it off."""
    subtalker_temperature: float | None
    """Sampling temperature of a frame's other codes; 0 always takes the likeliest."""
    subtalker_top_k: int | None
    """Keep this many of the likeliest other codes; 0 keeps all."""
    subtalker_top_p: float | None
    """Keep the likeliest other codes up to this total probability."""
    layout: Layouts
    """Read the text whole before speech, or streamed with its frames; auto is the original's choice for
    the kind of voice."""
    max_frames: int | Sequence[int] | None
    """Stop after this many codec frames of all pieces together."""
    piece_seconds: float | None
    """Longest piece of a long text in seconds; 0 does not cut. A designed voice differs from piece to
    piece, so its text is never cut."""
    trust_transcript: bool
    """Do not compare the transcript with the recording's length."""
    as_written: bool
    """Read marks of pauses as text, as the original does."""
    noise: Noise | Sequence[Noise] | None
    """Random numbers instead of the seed's."""

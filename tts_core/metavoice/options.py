"""Options of MetaVoice's generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tts_core.options import LONGEST_SECONDS, SharedChanges, SharedOptions, frames_option, option
from tts_core.text.pace import CHARACTERS_PER_SECOND

if TYPE_CHECKING:
    from tts_core.metavoice.inputs import SpeechNoise
else:
    SpeechNoise = object  # of Python only: no option's flag needs its module

Decoder = Literal["vocos", "mbd"]
DECODERS = ("vocos", "mbd")
PIECE_SECONDS = 220 / CHARACTERS_PER_SECOND  # upstream's app takes at most 220 characters


@dataclass(frozen=True)
class MetaVoiceOptions(SharedOptions):
    """Options of a generation; None is the model's own value. Raises UsageError for a value out of range."""

    cfg_scale: float | tuple[float, float] | None = option(
        None,
        "Guidance on the speaker, 3 by default; 1 turns it off. In Python also a pair, for speaker and text, "
        "by the rule of upstream's slow inference.",
        "--guidance",
        low=0,
        high=100,
    )
    temperature: float | None = option(
        None,
        "Sampling temperature, 1 by default; 0 always takes the likeliest id.",
        "--temp",
        low=0,
        high=100,
    )
    top_p: float | None = option(
        None, "Keep the likeliest ids up to this total probability; 0.95 by default.", low=0, high=1
    )
    top_k: int | None = option(
        None,
        "Keep this many of the likeliest ids; 0, the default, keeps all.",
        low=0,
        high=1_000_000,
        note=" (0 keeps every id)",
    )
    max_frames: int | Sequence[int | None] | None = frames_option()
    piece_seconds: float | None = option(
        PIECE_SECONDS,
        "Longest piece of a long text in seconds; 0 does not cut.",
        above=0,
        high=LONGEST_SECONDS,
        unset=0,
    )
    decoder: Literal["vocos", "mbd"] = option(
        "vocos",
        "Decoder of the waveform: vocos, or mbd, multi-band diffusion, whose weights are CC-BY-NC 4.0.",
        choices=DECODERS,
    )
    as_written: bool = option(False, "Do not spell out numbers and abbreviations.")
    skip_unknown: bool = option(False, "Leave characters out that the model has not learned, with a warning.")
    noise: SpeechNoise | Sequence[SpeechNoise] | None = option(
        None,
        "Random numbers instead of the seed's: one source, or one per piece; in a batch one per text.",
        flag=None,
        per_text=True,
    )


class MetaVoiceChanges(SharedChanges, total=False):
    """The fields of MetaVoiceOptions as keyword arguments."""

    cfg_scale: float | tuple[float, float] | None
    """Guidance on the speaker, 3 by default; 1 turns it off. In Python also a pair, for speaker and text,
    by the rule of upstream's slow inference."""
    temperature: float | None
    """Sampling temperature, 1 by default; 0 always takes the likeliest id."""
    top_p: float | None
    """Keep the likeliest ids up to this total probability; 0.95 by default."""
    top_k: int | None
    """Keep this many of the likeliest ids; 0, the default, keeps all."""
    max_frames: int | Sequence[int | None] | None
    """Stop after this many codec frames of all pieces together."""
    piece_seconds: float | None
    """Longest piece of a long text in seconds; 0 does not cut."""
    decoder: Literal["vocos", "mbd"]
    """Decoder of the waveform: vocos, or mbd, multi-band diffusion, whose weights are CC-BY-NC 4.0."""
    as_written: bool
    """Do not spell out numbers and abbreviations."""
    skip_unknown: bool
    """Leave characters out that the model has not learned, with a warning."""
    noise: SpeechNoise | Sequence[SpeechNoise] | None
    """Random numbers instead of the seed's: one source, or one per piece; in a batch one per text."""

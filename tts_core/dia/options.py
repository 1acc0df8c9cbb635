"""Options of Dia's generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tts_core.dia.sampling import SamplingChanges, SamplingOptions
from tts_core.options import LONGEST_SECONDS, frames_option, option

if TYPE_CHECKING:
    from tts_core.nn.noise import Noise
else:
    Noise = object  # of Python only: no option's flag needs its module

PieceSeconds = float | Literal["auto"] | None


@dataclass(frozen=True)
class DiaOptions(SamplingOptions):
    """Options of a generation; None is the model's own value. Raises UsageError for a value out of range."""

    max_frames: int | Sequence[int] | None = frames_option()
    piece_seconds: float | Literal["auto"] | None = option(
        "auto",
        "Longest piece of a long text in seconds; 0 does not cut.",
        "--piece-seconds",
        low=1,
        high=LONGEST_SECONDS,
        choices=("auto",),
        unset=0,
    )
    as_written: bool = option(
        False, "Read the text without the text rules of the model's folder.", "--as-written"
    )
    skip_unknown: bool = option(
        False,
        "Leave characters out that the model has not learned, with a warning.",
        "--skip-unknown",
    )
    noise: Noise | Sequence[Noise] | None = option(
        None, "Random numbers instead of the seed's.", per_text=True
    )
    last_channel_free: bool = option(False, "Do not force the last channel's row before speech.")


class DiaChanges(SamplingChanges, total=False):
    """The fields of DiaOptions as keyword arguments."""

    max_frames: int | Sequence[int] | None
    """Stop after this many codec frames of all pieces together."""
    piece_seconds: float | Literal["auto"] | None
    """Longest piece of a long text in seconds; 0 does not cut."""
    as_written: bool
    """Read the text without the text rules of the model's folder."""
    skip_unknown: bool
    """Leave characters out that the model has not learned, with a warning."""
    noise: Noise | Sequence[Noise] | None
    """Random numbers instead of the seed's."""
    last_channel_free: bool
    """Do not force the last channel's row before speech."""

"""Options of Dia2's generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tts_core.options import SharedChanges, SharedOptions, frames_option, option

if TYPE_CHECKING:
    from tts_core.nn.noise import Noise
else:
    Noise = object  # of Python only: no option's flag needs its module


@dataclass(frozen=True)
class Dia2Options(SharedOptions):
    """Options of a generation. Raises UsageError for a value out of range."""

    cfg_scale: float = option(2.0, "Classifier-free guidance; 1 turns it off.", "--guidance", low=0, high=100)
    cfg_filter_k: int = option(50, "Candidates that guidance picks; 0 turns it off.", low=0, high=1_000_000)
    temperature: float = option(
        0.8,
        "Sampling temperature of the sound; 0 always takes the likeliest code.",
        "--temp",
        low=0,
        high=100,
        note=" (0 is greedy)",
    )
    top_k: int = option(
        50,
        "Keep this many of the likeliest codes; 0 keeps all.",
        low=0,
        high=1_000_000,
        note=" (0 keeps every id)",
    )
    action_temperature: float = option(
        0.6,
        "Sampling temperature of the moments at which words begin; 0 always takes the likelier action.",
        low=0,
        high=100,
        note=" (0 is greedy)",
    )
    action_top_k: int = option(
        50, "Keep this many of the likeliest actions; 0 keeps both.", low=0, high=1_000_000
    )
    initial_padding: int = option(2, "Steps of 80 ms before the first word.", low=0, high=250)
    include_prefix: bool = option(
        False, "Begin the sound with the reference recordings, as far as they are kept."
    )
    max_frames: int | Sequence[int] | None = frames_option()
    as_written: bool = option(False, "Read tags, breaks and characters exactly as the original does.")
    noise: Noise | Sequence[Noise] | None = option(
        None, "Random numbers instead of the seed's.", flag=None, per_text=True
    )


class Dia2Changes(SharedChanges, total=False):
    """The fields of Dia2Options as keyword arguments."""

    cfg_scale: float
    """Classifier-free guidance; 1 turns it off."""
    cfg_filter_k: int
    """Candidates that guidance picks; 0 turns it off."""
    temperature: float
    """Sampling temperature of the sound; 0 always takes the likeliest code."""
    top_k: int
    """Keep this many of the likeliest codes; 0 keeps all."""
    action_temperature: float
    """Sampling temperature of the moments at which words begin; 0 always takes the likelier action."""
    action_top_k: int
    """Keep this many of the likeliest actions; 0 keeps both."""
    initial_padding: int
    """Steps of 80 ms before the first word."""
    include_prefix: bool
    """Begin the sound with the reference recordings, as far as they are kept."""
    max_frames: int | Sequence[int] | None
    """Stop after this many codec frames of all pieces together."""
    as_written: bool
    """Read tags, breaks and characters exactly as the original does."""
    noise: Noise | Sequence[Noise] | None
    """Random numbers instead of the seed's."""

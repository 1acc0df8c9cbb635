"""Options of MARS5's generation.

Names and defaults follow upstream's inference configuration where it has the option; its
`nar_guidance_w` is `cfg_scale` here. Omitted are `beam_width`, which upstream rejects unless it is 1,
and `use_kv_cache`, which changes no number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tts_core.options import LONGEST_SECONDS, SharedChanges, SharedOptions, frames_option, option

if TYPE_CHECKING:
    from tts_core.mars5.diffusion import Draws
    from tts_core.nn.noise import Noise
else:
    Draws = Noise = object  # of Python only: no option's flag needs its module

MAX_LEN = 2000  # ids, prompt included, unless generate_max_len_override is given
PIECE_SECONDS = 10.0  # of speech, approximately: a length that the networks speak well at once


@dataclass(frozen=True)
class Mars5Options(SharedOptions):
    """Options of a generation. Raises UsageError for a value out of range."""

    cfg_scale: float = option(
        3.0, "Classifier-free guidance of the diffusion; 1 turns it off.", "--guidance", low=0, high=100
    )
    temperature: float = option(
        0.7,
        "Sampling temperature; 0 always takes the likeliest id.",
        "--temp",
        low=0,
        high=100,
        zero_below=1e-5,
    )
    top_p: float = option(
        0.2, "Keep the likeliest ids up to this total probability; 1 keeps all.", low=0, high=1
    )
    top_k: int = option(
        200,
        "Keep this many of the likeliest ids, and ties with the last; 0 keeps all.",
        low=0,
        high=1_000_000,
    )
    max_frames: int | Sequence[int] | None = frames_option()
    piece_seconds: float | None = option(
        PIECE_SECONDS,
        "Longest piece of a long text in seconds; 0 does not cut.",
        low=1,
        high=LONGEST_SECONDS,
        unset=0,
    )
    as_written: bool = option(False, "Do not spell out numbers and abbreviations, and keep white space.")
    deep_clone: bool | None = option(
        None,
        "Use the reference's words too, or only its voice; deep by default if they are given.",
        flag="--deep/--shallow",
    )
    typical_p: float = option(
        1.0,
        "Keep the ids of the most typical surprise up to this total probability; above 0.999 keeps all.",
        above=0,
        high=1,
    )
    freq_penalty: float = option(
        3.0,
        "Subtracted from an id's logit for each occurrence among the last ids; 0 turns it off.",
        low=-100,
        high=100,
    )
    presence_penalty: float = option(
        0.4,
        "Subtracted from an id's logit if it occurs among the last ids; 0 turns it off.",
        low=-100,
        high=100,
    )
    rep_penalty_window: int = option(
        80, "Number of last ids that both penalties count.", low=1, high=1_000_000
    )
    eos_penalty_factor: float = option(
        1.0, "Factor of the penalty for ending before the expected length; 0 turns it off.", low=0, high=1000
    )
    eos_penalty_decay: float = option(
        0.5, "Exponent of the number of missing ids in that penalty.", low=0, high=4
    )
    eos_estimated_gen_length_factor: float = option(
        1.0, "Expected length in ids per character of text.", low=0, high=100
    )
    generate_max_len_override: int = option(
        -1, f"Most ids of a piece, the prompt's included; 1 and below mean {MAX_LEN}.", low=-1, high=1_000_000
    )
    timesteps: int = option(200, "Steps of the diffusion; upstream always uses 200.", low=1, high=1000)
    x_0_temp: float = option(0.7, "Temperature of the diffusion's guided logits.", low=0.001, high=100)
    q0_override_steps: int = option(
        20, "Keep noise off the first codebook at timesteps above this.", low=0, high=1000
    )
    trim_db: float = option(
        27.0, "Trim both ends where they are this many dB below the loudest part.", above=0, high=1000
    )
    ref_audio_pad: float = option(0.0, "Seconds of silence added before the reference.", low=0, high=60)
    max_prompt_dur: float = option(
        12.0, "Longest reference in seconds; the networks expect at most 12.", low=0, high=1800
    )
    noise: Noise | Sequence[Noise | Sequence[Noise]] | None = option(
        None, "Random numbers instead of the seed's.", flag=None, per_text=True
    )
    draws: Draws = option(
        "per cell",
        "Random numbers of the diffusion: two per cell, or the original's one per class of every cell.",
        flag=None,
        choices=("per cell", "per class"),
    )

    @property
    def max_len(self) -> int:
        """Most ids of the autoregressive network, prompt included."""
        return self.generate_max_len_override if self.generate_max_len_override > 1 else MAX_LEN


class Mars5Changes(SharedChanges, total=False):
    """The fields of Mars5Options as keyword arguments."""

    cfg_scale: float
    """Classifier-free guidance of the diffusion; 1 turns it off."""
    temperature: float
    """Sampling temperature; 0 always takes the likeliest id."""
    top_p: float
    """Keep the likeliest ids up to this total probability; 1 keeps all."""
    top_k: int
    """Keep this many of the likeliest ids, and ties with the last; 0 keeps all."""
    max_frames: int | Sequence[int] | None
    """Stop after this many codec frames of all pieces together."""
    piece_seconds: float | None
    """Longest piece of a long text in seconds; 0 does not cut."""
    as_written: bool
    """Do not spell out numbers and abbreviations, and keep white space."""
    deep_clone: bool | None
    """Use the reference's words too, or only its voice; deep by default if they are given."""
    typical_p: float
    """Keep the ids of the most typical surprise up to this total probability; above 0.999 keeps all."""
    freq_penalty: float
    """Subtracted from an id's logit for each occurrence among the last ids; 0 turns it off."""
    presence_penalty: float
    """Subtracted from an id's logit if it occurs among the last ids; 0 turns it off."""
    rep_penalty_window: int
    """Number of last ids that both penalties count."""
    eos_penalty_factor: float
    """Factor of the penalty for ending before the expected length; 0 turns it off."""
    eos_penalty_decay: float
    """Exponent of the number of missing ids in that penalty."""
    eos_estimated_gen_length_factor: float
    """Expected length in ids per character of text."""
    generate_max_len_override: int
    """Most ids of a piece, the prompt's included; 1 and below mean 2000."""
    timesteps: int
    """Steps of the diffusion; upstream always uses 200."""
    x_0_temp: float
    """Temperature of the diffusion's guided logits."""
    q0_override_steps: int
    """Keep noise off the first codebook at timesteps above this."""
    trim_db: float
    """Trim both ends where they are this many dB below the loudest part."""
    ref_audio_pad: float
    """Seconds of silence added before the reference."""
    max_prompt_dur: float
    """Longest reference in seconds; the networks expect at most 12."""
    noise: Noise | Sequence[Noise | Sequence[Noise]] | None
    """Random numbers instead of the seed's."""
    draws: Draws
    """Random numbers of the diffusion: two per cell, or the original's one per class of every cell."""

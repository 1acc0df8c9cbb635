"""Options of Dia's generation, and settings of its sampling.

A new setting is a field of DiaSampling, SamplingOptions and SamplingChanges, and a rule of the samplers,
which sampling.py of both sides and torch_ref/cuda/sampling.py have. Plain NumPy versions are in
tests/tts_core/dia/sampling_rules.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tts_core.errors import UsageError
from tts_core.nn.sampling import Sampler
from tts_core.options import LONGEST_SECONDS, SharedChanges, SharedOptions, frames_option, option

if TYPE_CHECKING:
    import numpy as np

    from tts_core.nn.noise import Noise
else:
    Noise = object  # of Python only: no option's flag needs its module


V01_EOS_SCALE = 0.8  # v0.1 multiplies channel 0's guided EOS logit by this, positive or negative


@dataclass(frozen=True)
class DiaSampling:
    """Settings for sampling one token.

    `temperature` 0 is greedy; `cfg_scale` 0 turns guidance off; `top_k` 0 keeps every id. A field that older
    folders lack has a default.
    """

    cfg_scale: float
    temperature: float
    top_p: float
    top_k: int

    def __post_init__(self) -> None:
        if not (math.isfinite(self.cfg_scale) and self.cfg_scale >= 0):
            raise UsageError(f"cfg_scale: {self.cfg_scale} is not a number >= 0")
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise UsageError(f"temperature: {self.temperature} is not a number >= 0 (0 is greedy)")
        if not 0 < self.top_p <= 1:
            raise UsageError(f"top_p: {self.top_p} is outside (0, 1]")
        if self.top_k != int(self.top_k) or self.top_k < 0:
            raise UsageError(f"top_k: {self.top_k} is not a whole number >= 0 (0 keeps every id)")


LAST = "top_k", "top_p"
# upstream samples from the conditional logits; guidance only picks the candidates
SAMPLER_0626 = Sampler(
    DiaSampling,
    ("guidance", "allowed_ids", "guided_top_k", "temperature", "end_exactly_if_best", *LAST),
)
SAMPLER_V01 = Sampler(
    DiaSampling,
    ("guidance", "guided_logits", "allowed_ids", "end_scale", "temperature", "end_only_if_best", *LAST),
    end_scale=V01_EOS_SCALE,
)


def allowed_ids(channels: int, vocabulary: int, eos: int) -> np.ndarray:
    """Return which ids each channel may draw: codes, and channel 0 also the end. → (C, V) bool."""
    import numpy as np

    ids, channel = np.arange(vocabulary), np.arange(channels)[:, None]
    return (ids < eos) | ((ids == eos) & (channel == 0))


DEFAULTS_0626 = DiaSampling(cfg_scale=3.0, temperature=1.2, top_p=0.95, top_k=45)
DEFAULTS_V01 = DiaSampling(cfg_scale=3.0, temperature=1.3, top_p=0.95, top_k=45)


@dataclass(frozen=True)
class SamplingOptions(SharedOptions):
    """The fields of DiaSampling as options; None is the model's own value."""

    cfg_scale: float | None = option(
        None, "Classifier-free guidance; 0 turns it off.", "--guidance", low=0, high=100
    )
    temperature: float | None = option(
        None,
        "Sampling temperature; 0 always takes the likeliest code.",
        "--temp",
        low=0,
        high=100,
        zero_below=1e-5,
        note=" (0 is greedy)",
    )
    top_p: float | None = option(
        None, "Keep the likeliest codes up to this total probability.", above=0, high=1
    )
    top_k: int | None = option(
        None,
        "Keep this many of the likeliest codes; 0 keeps all.",
        low=0,
        high=1_000_000,
        note=" (0 keeps every id)",
    )


class SamplingChanges(SharedChanges, total=False):
    """The fields of SamplingOptions as keyword arguments."""

    cfg_scale: float | None
    """Classifier-free guidance; 0 turns it off."""
    temperature: float | None
    """Sampling temperature; 0 always takes the likeliest code."""
    top_p: float | None
    """Keep the likeliest codes up to this total probability."""
    top_k: int | None
    """Keep this many of the likeliest codes; 0 keeps all."""


PieceSeconds = float | Literal["auto"] | None


@dataclass(frozen=True)
class DiaOptions(SamplingOptions):
    """Options of a generation; None is the model's own value. Raises UsageError for a value out of range."""

    max_frames: int | Sequence[int] | None = frames_option()
    piece_seconds: float | Literal["auto"] | None = option(
        "auto",
        "Longest piece of a long text in seconds; 0 does not cut.",
        low=1,
        high=LONGEST_SECONDS,
        choices=("auto",),
        unset=0,
    )
    as_written: bool = option(False, "Read the text without the text rules of the model's folder.")
    skip_unknown: bool = option(False, "Leave characters out that the model has not learned, with a warning.")
    noise: Noise | Sequence[Noise] | None = option(
        None, "Random numbers instead of the seed's.", flag=None, per_text=True
    )
    last_channel_free: bool = option(False, "Do not force the last channel's row before speech.", flag=None)


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

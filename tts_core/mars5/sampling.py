"""MARS5's settings of generation, and the numbers of its sampling that both sides share.

Names and defaults are those of the original's inference configuration. Left out are `beam_width`, which it
refuses but for 1, `use_kv_cache`, which changes nothing, and `deep_clone`, an argument of `generate`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np

from tts_core.errors import UsageError

MAX_LEN = 2000  # ids, prompt included, where nothing else is said
PENALTIES_ABOVE = 1  # generated ids: up to so many nothing is held against an id that repeats
TYPICAL_OFF = 0.999  # a `typical_p` above it keeps all ids


@dataclass(frozen=True)
class Mars5Settings:
    """How MARS5 generates. Raises UsageError for a value out of its range.

    Autoregressive network:
    temperature: divisor of the logits; 0 takes the most probable id.
    top_k: how many ids are kept; 0 keeps all. Ties at the edge stay.
    top_p: of these, the most probable ones are kept until their probabilities exceed it; 1 keeps all.
    typical_p: of these, the ones with the most expected surprise are kept until their probabilities reach it;
        above 0.999 keeps all. Meister et al., "Locally typical sampling", arXiv:2202.00666.
    freq_penalty, presence_penalty: subtracted from an id's logit for every, and for any occurrence of it
        among the last `rep_penalty_window` generated ids.
    eos_penalty_factor, eos_penalty_decay: factor and exponent of what is subtracted from the end's logit for
        each id that is missing to the expected length; factor 0 turns it off.
    eos_estimated_gen_length_factor: expected length in ids, per character of the text.
    generate_max_len_override: most ids, prompt included; 1 and below stand for 2,000.

    Diffusion network:
    timesteps: how many steps it takes (the original always takes 200).
    x_0_temp: divisor of its guided logits.
    nar_guidance_w: weight of classifier-free guidance: w · with voice + (1 - w) · without; 1 is without
        guidance. `cfg_scale` of `generate` is this.
    q0_override_steps: as long as the timestep is above it, the first codebook's codes are kept free of noise.

    Audio:
    trim_db: silence at both ends that is quieter than the loudest part by so many dB is cut off.
    ref_audio_pad: seconds of silence in front of the reference.
    max_prompt_dur: seconds of reference that the networks were made for.
    """

    temperature: float = 0.7
    top_k: int = 200
    top_p: float = 0.2
    typical_p: float = 1.0
    freq_penalty: float = 3.0
    presence_penalty: float = 0.4
    rep_penalty_window: int = 80
    eos_penalty_factor: float = 1.0
    eos_penalty_decay: float = 0.5
    eos_estimated_gen_length_factor: float = 1.0
    generate_max_len_override: int = -1
    timesteps: int = 200
    x_0_temp: float = 0.7
    nar_guidance_w: float = 3.0
    q0_override_steps: int = 20
    trim_db: float = 27.0
    ref_audio_pad: float = 0.0
    max_prompt_dur: float = 12.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value, whole = getattr(self, field.name), field.type == "int"
            number = isinstance(value, int if whole else int | float)
            if not number or isinstance(value, bool) or not math.isfinite(value):
                raise UsageError(f"{field.name}: {value!r} is not a {'whole ' * whole}number")
            low, high = _RANGES.get(field.name, (-math.inf, math.inf))
            if not low <= value <= high:
                limits = f"{low:g} .. {high:g}" if high < math.inf else f"{low:g} and more"
                raise UsageError(f"{field.name}: {value} is outside {limits}")
        for name in ("x_0_temp", "typical_p", "trim_db"):
            if getattr(self, name) == 0:
                raise UsageError(f"{name}: must be above 0")

    @property
    def max_len(self) -> int:
        """Most ids of the autoregressive network, prompt included."""
        return self.generate_max_len_override if self.generate_max_len_override > 1 else MAX_LEN


_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0, math.inf),
    "top_k": (0, math.inf),
    "top_p": (0, 1),
    "typical_p": (0, 1),
    "rep_penalty_window": (1, math.inf),
    "eos_penalty_factor": (0, math.inf),
    "eos_penalty_decay": (0, math.inf),
    "eos_estimated_gen_length_factor": (0, math.inf),
    "timesteps": (1, 1000),
    "x_0_temp": (0, math.inf),
    "nar_guidance_w": (0, math.inf),
    "q0_override_steps": (0, math.inf),
    "trim_db": (0, math.inf),
    "ref_audio_pad": (0, 60),
    "max_prompt_dur": (0, math.inf),
}


def end_penalties(settings: Mars5Settings, expected: int, count: int) -> np.ndarray:
    """What the end's logit loses once n ids are generated, n = 0 .. count - 1. (count,) float32.

    expected: the length up to which there is a penalty.
    """
    missing = expected - np.arange(count)
    penalty = settings.eos_penalty_factor * np.maximum(missing, 1.0) ** settings.eos_penalty_decay
    return np.where(missing >= 0, penalty, 0.0).astype(np.float32)

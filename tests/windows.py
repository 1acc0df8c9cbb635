"""The bound of samples whose windows a codec cut otherwise, or decoded beside those of others.

Windows have all the context that they need (tests/parity/codecs holds them equal in float64 to 1e-11), so a
speech is decoded by the same operations however it is cut, and its samples are a float32 run of the codec on
these codes: each within `tolerance.bound` of the float64 run. Two of them differ by at most twice that.
What follows adds no more: cuts, fades, and means of samples have gains of at most 1; MetaVoice's level has
its own, by which the bound grows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from tests.tolerance import bound
from tts_core.audio.loudness import normalize_loudness
from tts_core.mars5.request import BANDWIDTH_ID, for_vocoder
from tts_core.metavoice.net import MetaVoiceSource
from tts_core.nn.noise import HostNoise
from tts_core.results import GenerationResult
from tts_core.speaking.speech import Sound

Sounds = Callable[[Any, np.ndarray], list[np.ndarray]]


def _codec(engine: Any, codes: np.ndarray) -> list[np.ndarray]:
    return [np.asarray(engine.codec.decode(codes[None]))[0]]


def _vocoder(engine: Any, codes: np.ndarray) -> list[np.ndarray]:
    known = engine.vocoder_config
    readable = for_vocoder(codes, known.n_codebooks, known.codebook_size)
    return [np.asarray(engine.vocoder.decode(readable[None], BANDWIDTH_ID))[0]]


def _decoders(engine: Any, codes: np.ndarray) -> list[np.ndarray]:
    """By every decoder: a result does not say which one spoke it."""
    sounds = []
    for each in engine.decoders:
        window = Sound(codes, 0, source=MetaVoiceSource(each, HostNoise(0)))
        [made] = engine.decode([window], None, lambda: None)
        sounds.append(normalize_loudness(made, engine.sample_rate))
    return sounds


SOUNDS: Mapping[str, Sounds] = {
    "dia": _codec,
    "dia2": _codec,
    "mars5": _vocoder,
    "metavoice": _decoders,
    "qwen3": _codec,
}


class Windows:
    """How far apart two float32 decodes of a speech may be.

    load: the model in PyTorch, in a dtype.
    """

    def __init__(self, model: str, load: Callable[[str], Any]):
        self._sounds, self._load = SOUNDS[model], load

    @cached_property
    def _known(self) -> Any:
        return self._load("float32").engine

    @cached_property
    def _truth(self) -> Any:
        return self._load("float64").engine

    def rounding(self, one: GenerationResult) -> float:
        """Largest difference of samples in two decodes of this speech."""
        found = 0.0
        for known, truth in zip(
            self._sounds(self._known, one.codes), self._sounds(self._truth, one.codes), strict=True
        ):
            level = max(1.0, np.abs(one.audio).max(initial=0.0) / max(np.abs(truth).max(initial=0.0), 1e-9))
            found = max(found, 2 * level * bound(known, truth.astype(np.float64)))
        return found

    def assert_same(self, one: GenerationResult, other: GenerationResult) -> None:
        """Require the same samples up to rounding."""
        if not np.array_equal(one.audio, other.audio):
            np.testing.assert_allclose(one.audio, other.audio, rtol=0, atol=self.rounding(one))

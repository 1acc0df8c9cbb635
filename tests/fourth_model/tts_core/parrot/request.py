"""A request of Parrot: its words as input of the network."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tts_core.audio.delivery import Pacing
from tts_core.codecs.dac import DacConfig
from tts_core.config import Configs, config_of
from tts_core.errors import UsageError
from tts_core.memory.machine import Machine
from tts_core.memory.terms import Estimate
from tts_core.parrot.options import ParrotOptions
from tts_core.parrot.outlook import ParrotJob, estimate
from tts_core.parrot.spec import ParrotConfig
from tts_core.pipeline import PromptLike
from tts_core.text import breaks
from tts_core.text.checks import check_words


@dataclass(frozen=True, eq=False)
class ParrotRequest:
    """Words, each a piece. frame_rate: of the codec, in Hz."""

    config: ParrotConfig
    codec: DacConfig
    pieces: tuple[str, ...]
    options: ParrotOptions
    pacing: Pacing
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """Length of the speech."""
        speech = len(self.pieces) * self.options.frames_per_word / self.codec.frame_rate
        return self.pacing.seconds(speech)

    def features(self, piece: str) -> np.ndarray:
        """(1, T, D) float32: noise of the word's bytes."""
        random = np.random.default_rng(list(piece.encode()))
        return random.normal(size=(1, self.options.frames_per_word, self.config.width)).astype(np.float32)

    def estimate(self, machine: Machine) -> Estimate:
        """Estimate the memory that it takes."""
        configs = {"parrot": self.config, "dac": self.codec}
        return estimate(configs, ParrotJob(self.options.frames_per_word), machine)


def request(
    config: ParrotConfig, codec: DacConfig, text: str, options: ParrotOptions, prompt: PromptLike
) -> ParrotRequest:
    """Check one text. Raises UsageError."""
    if prompt is not None:
        raise UsageError("prompt: Parrot has one voice; leave it out")
    paused = breaks.read("text", text)
    check_words("text", paused.blanked)
    words, silences = paused.cut(str.split)
    pacing = Pacing(tuple(words), silences, options.speed)
    return ParrotRequest(config, codec, pacing.texts, options, pacing)


def ask(
    configs: Configs,
    documents: object,
    text: str,
    options: ParrotOptions,
    prompt: PromptLike,
    *,
    more: bool = False,
) -> ParrotRequest:
    """A request, from the configurations of a model's parts by kind. more: its text goes on."""
    config, codec = config_of(configs, "parrot", ParrotConfig), config_of(configs, "dac", DacConfig)
    return request(config, codec, text, options, prompt)

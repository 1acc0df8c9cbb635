"""A request of Parrot: its words as input of the network."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tts_core.audio.delivery import Pacing
from tts_core.codecs.dac import DacConfig
from tts_core.config import Configs, config_of
from tts_core.errors import UsageError
from tts_core.parrot.model import ParrotConfig
from tts_core.parrot.options import ParrotOptions
from tts_core.parrot.outlook import ParrotJob
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
    text: str = ""

    @property
    def is_open(self) -> bool:
        """True for a text that goes on."""
        return not self.pieces

    def opened(self) -> ParrotRequest:
        """The request of the same text, which goes on."""
        return replace(self, pieces=(), pacing=Pacing((), (None,), self.options.speed))

    @property
    def seed(self) -> int:
        """It is fixed by default."""
        return self.options.seed or 0

    @property
    def seconds(self) -> float:
        """Length of the speech."""
        speech = len(self.pieces) * self.options.frames_per_word / self.codec.frame_rate
        return self.pacing.seconds(speech)

    def features(self, piece: str) -> np.ndarray:
        """(1, T, D) float32: noise of the word's bytes."""
        random = np.random.default_rng(list(piece.encode()))
        return random.normal(size=(1, self.options.frames_per_word, self.config.width)).astype(np.float32)

    def job(self) -> ParrotJob:
        """The memory job of a word."""
        return ParrotJob(self.options.frames_per_word)


def request(
    config: ParrotConfig, codec: DacConfig, text: str, options: ParrotOptions, prompt: PromptLike
) -> ParrotRequest:
    """Check one text. Raises UsageError."""
    if prompt is not None:
        raise UsageError("prompt: Parrot has one voice; leave it out")
    pacing = paced(text, options)
    return ParrotRequest(config, codec, pacing.texts, options, pacing, text=text)


def paced(text: str, options: ParrotOptions) -> Pacing:
    """Cut a text into words. Raises UsageError."""
    found = breaks.read("text", text)
    check_words("text", found.blanked)
    words, silences = found.cut(str.split)
    return Pacing(tuple(words), silences, options.speed)


def live(
    config: ParrotConfig, codec: DacConfig, text: str, options: ParrotOptions, prompt: PromptLike
) -> ParrotRequest:
    """Check the beginning of a text that goes on, which may be empty."""
    return replace(request(config, codec, text or "Polly", options, prompt), text=text).opened()


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
    return (live if more else request)(config, codec, text, options, prompt)

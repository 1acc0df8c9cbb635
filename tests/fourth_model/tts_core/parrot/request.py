"""A request of Parrot: its words as input of the network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tts_core.audio.delivery import Pacing
from tts_core.codecs.dac import DacConfig
from tts_core.config import Configs, config_of
from tts_core.errors import UsageError
from tts_core.models import Documents
from tts_core.parrot.footprint import ParrotJob
from tts_core.parrot.model import ParrotConfig
from tts_core.parrot.options import ParrotOptions
from tts_core.pipeline import PromptLike
from tts_core.speaking.request import RequestFacts
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


@dataclass(frozen=True)
class ParrotFacts(RequestFacts):
    """What a request needs to know of a Parrot."""

    config: ParrotConfig
    codec: DacConfig

    @classmethod
    def of(cls, configs: Configs, documents: Documents) -> ParrotFacts:
        return cls(config_of(configs, "parrot", ParrotConfig), config_of(configs, "dac", DacConfig))

    def request(self, text: str, options: ParrotOptions, prompt: PromptLike = None) -> ParrotRequest:
        if prompt is not None:
            raise UsageError("prompt: Parrot has one voice; leave it out")
        pacing = paced(text, options)
        return ParrotRequest(self.config, self.codec, pacing.texts, options, pacing, text=text)

    def requests(
        self, texts: Sequence[str], options: ParrotOptions, prompts: Any, *, exactly: bool = False
    ) -> list[ParrotRequest]:
        return [self.request(text, options) for text in texts]

    def live(self, text: str | None, options: ParrotOptions, prompt: PromptLike) -> ParrotRequest:
        return replace(self.request(text or "Polly", options, prompt), text=text or "").opened()

    def rehearsal(self) -> ParrotRequest:
        return self.request("Polly", ParrotOptions())


def paced(text: str, options: ParrotOptions) -> Pacing:
    """Cut a text into words. Raises UsageError."""
    found = breaks.read("text", text)
    check_words("text", found.blanked)
    words, silences = found.cut(str.split)
    return Pacing(tuple(words), silences, options.speed)


facts = ParrotFacts.of

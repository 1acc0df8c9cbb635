"""Parrot's generation: words in, codes and speech out, a part per word."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Unpack

import numpy as np

from tts_core.audio.delivery import Delivery
from tts_core.live.stream import stream
from tts_core.live.voices import SameVoices
from tts_core.memory.fits import check
from tts_core.nn.host import Device
from tts_core.options import chosen
from tts_core.parrot.options import ParrotChanges, ParrotOptions
from tts_core.parrot.request import ParrotRequest, request
from tts_core.parrot.session import ParrotSession
from tts_core.pipeline import Callbacks, Progress, PromptLike
from tts_core.results import GenerationResult, Meter, join

Tell = Callable[[Progress], None]


class ParrotEngine:
    """Parrot's network and the codec; a seed and the codebook's number shift the code.

    best: the network's most probable logits, on its device.
    """

    def __init__(self, network: Any, best: Callable[[Any], Any], codec: Any, words: str, host: Device):
        self.network, self.best, self.codec, self.words, self.host = network, best, codec, words, host
        self.config, self.codec_config = network.config, codec.config

    def codes(self, features: np.ndarray, seed: int) -> np.ndarray:
        """(1, T, D) → (Q, T) int32."""
        best = self.host.to_host(self.best(self.host.to_device(features)))
        books = np.arange(self.codec_config.n_codebooks)[:, None]
        return ((best + books + seed) % self.codec_config.codebook_size).astype(np.int32)

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """(Q, T) → (L,) float32."""
        return self.host.to_host(self.codec.decode(codes[None]))[0].astype(np.float32)


class ParrotPipeline:
    """A Parrot of either side."""

    def __init__(self, engine: ParrotEngine):
        self.engine, self.sample_rate = engine, engine.codec_config.sample_rate

    def generate(
        self,
        text: str,
        *,
        prompt: PromptLike = None,
        options: ParrotOptions | None = None,
        progress: Tell | None = None,
        cancel: threading.Event | None = None,
        **changes: Unpack[ParrotChanges],
    ) -> GenerationResult:
        """Speak one text."""
        asked = self.request(text, chosen(ParrotOptions, options, changes), prompt)
        return join(list(self.speak(asked, progress=progress, cancel=cancel)))

    def stream(
        self,
        text: str | Iterable[str],
        *,
        prompt: PromptLike = None,
        options: ParrotOptions | None = None,
        progress: Tell | None = None,
        cancel: threading.Event | None = None,
        **changes: Unpack[ParrotChanges],
    ) -> Iterator[GenerationResult]:
        """Speak one text word by word."""
        asked = chosen(ParrotOptions, options, changes)
        if not isinstance(text, str):
            return stream(self, text, asked, SameVoices(prompt), progress=progress, cancel=cancel)
        return self.speak(self.request(text, asked, prompt), progress=progress, cancel=cancel)

    def generate_batch(
        self,
        texts: Sequence[str],
        *,
        prompts: Sequence[PromptLike] | None = None,
        options: ParrotOptions | None = None,
        progress: Tell | None = None,
        cancel: threading.Event | None = None,
        **changes: Unpack[ParrotChanges],
    ) -> list[GenerationResult]:
        """Speak several texts, one after the other."""
        return [
            self.generate(text, options=options, progress=progress, cancel=cancel, **changes)
            for text in texts
        ]

    def request(self, text: str, options: ParrotOptions, prompt: PromptLike = None) -> ParrotRequest:
        """Check a caller's arguments."""
        return request(self.engine.config, self.engine.codec_config, text, options, prompt)

    def speak(
        self, request: ParrotRequest, *, progress: Tell | None = None, cancel: threading.Event | None = None
    ) -> Iterator[GenerationResult]:
        """Stream the speech of a request. Raises ResourceError for too little memory."""
        self.check_memory(request)
        return self._parts(request, Callbacks(progress, cancel))

    def session(self, places: int, *, streamed: bool = True) -> ParrotSession:
        """Open a running batch. streamed: changes nothing; a word is decoded at once."""
        return ParrotSession(self, places)

    def check_memory(self, request: ParrotRequest) -> None:
        """Raise ResourceError for too little memory."""
        machine = self.engine.host.machine()
        check("the words", request.estimate(machine).running, machine)

    def _parts(self, request: ParrotRequest, watch: Callbacks) -> Iterator[GenerationResult]:
        meter, seed = Meter(self.sample_rate), request.options.seed or 0
        delivery = Delivery(request.pacing, self.sample_rate)
        for place, word in enumerate(request.pieces):
            codes = self.engine.codes(request.features(word), seed)
            last = place == len(request.pieces) - 1
            audio = delivery.add(self.engine.decode(codes), last_of_piece=not last)
            if last:
                audio = np.concatenate([audio, delivery.finish()])
            meter.add(len(audio))
            watch.tell("speech", meter.samples / self.sample_rate, request.seconds)
            yield meter.result(
                audio,
                codes,
                seed=seed,
                token_count=place + 1,
                peak_bytes=self.engine.host.peak_bytes(),
                segment_idx=place,
                finish_reason="stop" if last else None,
                cues=delivery.cues(),
            )

"""Parrot's network and the codec of either side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tts_core.codecs.policy import CodecPolicy
from tts_core.models import Documents
from tts_core.nn.beside import Done, Pending
from tts_core.nn.host import Device
from tts_core.parrot.footprint import PLAN, ParrotJob
from tts_core.parrot.request import ParrotFacts, ParrotRequest
from tts_core.speaking.admission import Admission
from tts_core.speaking.net import Net
from tts_core.speaking.speech import Made, Sound


class ParrotNet(Net):
    """A seed and the codebook's number shift the code. Its words take no running batch.

    best: the network's most probable logits, on its device.
    """

    kinds, facts_of, plan = ("parrot", "dac"), ParrotFacts.of, PLAN

    def __init__(
        self, networks: Any, documents: Documents, host: Device, *, best: Callable[[Any], Any], **how: Any
    ):
        super().__init__(networks, documents, host, **how)
        self.best, self.words = best, documents["parrot"]["words.txt"]

    def together(self, requests: Sequence[ParrotRequest], most: int | None = None) -> tuple[ParrotJob, int]:
        self.check(requests[0].job())
        return requests[0].job(), len(requests)

    def open(self, places: int, job: ParrotJob | None, policy: CodecPolicy | None) -> tuple[Any, Admission]:
        return None, self.admission(places, lambda texts: ParrotJob(12, texts))

    def codes(self, features: np.ndarray, seed: int) -> Made:
        """(1, T, D) → (Q, T) int32."""
        best = self.host.to_host(self.best(self.host.to_device(features)))
        books = np.arange(self.codec_config.n_codebooks)[:, None]
        return Made(((best + books + seed) % self.codec_config.codebook_size).astype(np.int32))

    def split(self, windows: Sequence[Sound], policy: CodecPolicy | None) -> Iterable[Sequence[int]]:
        return [range(len(windows))]

    def launch(self, windows: Sequence[Sound], policy: CodecPolicy | None) -> Pending[list[np.ndarray]]:
        codes = [window.codes for window in windows]
        return Done([self.host.to_host(self.codec.decode(one[None]))[0].astype(np.float32) for one in codes])

"""A whole small MetaVoice in a converted folder: the golden networks, and bands of diffusion that fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.tiny.mbd import CONFIG, published_content, write_published
from tests.tiny.networks import tiny
from tests.tiny.published_models import METAVOICE, sources
from tts_core.audio.files import read_audio
from tts_core.codecs.mbd import MbdConfig
from tts_core.metavoice.config import END_OF_AUDIO
from tts_core.nn.noise import HostNoise
from tts_core.prompt import Prompt

TEXT = "Hello there."  # one piece: the second stage's window is small
LONG = "Hello there. It is late. Who are you?"  # three
RATE = 24_000


def write_model(folder: Path) -> Path:
    """As convert-weights writes it, multi-band diffusion included."""
    from converters.convert import convert
    from converters.published import open_published

    published = open_published(sources("metavoice"))
    bands = bands_for(published.parts["encodec"].config.hidden_size)
    file = write_published(folder / "mbd_comp_8.pt", published_content(bands, tiny(bands).tensors))
    opened = open_published([*sources("metavoice"), file], include=["mbd"])
    convert(opened, folder / "model", dtype="float32")
    return folder / "model"


def bands_for(codec_dim: int) -> MbdConfig:
    """Bands at the model's rate, for latents of size `codec_dim`, with few steps."""
    bands = [
        replace(
            band,
            unet=replace(band.unet, codec_dim=codec_dim),
            schedule=replace(band.schedule, num_steps=8),
        )
        for band in CONFIG.bands
    ]
    return MbdConfig(RATE, tuple(bands))


def reference(seconds: float = 31.0) -> Prompt:
    """The golden recording, repeated to a length in seconds."""
    wave = read_audio(METAVOICE / "speaker_ref_24k.wav", RATE)
    return Prompt.of(audio=np.resize(wave, round(seconds * RATE)))


class Ending(HostNoise):
    """A seed's numbers, with the end of audio drawn as id `at` unless a filter removes it."""

    def __init__(self, seed: int, at: int):
        super().__init__(seed)
        self.at = at

    def uniform(self, step: int, shape: tuple[int, ...]) -> np.ndarray:
        made = super().uniform(step, shape)
        if len(shape) == 1 and step == self.at:
            made = np.full(shape, 2.0**-24, np.float32)  # all others wait long
            made[END_OF_AUDIO] = 1 - 2.0**-24
        return made

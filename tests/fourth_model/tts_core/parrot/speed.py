"""What timing Parrot needs to know."""

from __future__ import annotations

from tts_core.codecs.dac import DacConfig
from tts_core.config import config_of
from tts_core.speed import Speed

SPEED = Speed(
    stages=("speech",),
    unit="word",
    steps_per_frame=1,
    frame_rate=lambda configs: config_of(configs, "dac", DacConfig).frame_rate,
    layers=lambda configs: 1,
    reads=lambda name: True,
    text="Polly wants a cracker now",
    documents=lambda configs: {"parrot": {"words.txt": "Polly"}, "dac": {}},
)

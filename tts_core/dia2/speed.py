"""Facts about Dia2 for `mlx-port bench`."""

from __future__ import annotations

import json

from tts_core.codecs.mimi import MimiConfig
from tts_core.config import Configs, config_of
from tts_core.dia2.config import Dia2Config
from tts_core.dia2.script import SPEAKERS
from tts_core.dia2.tokenizer import FILE
from tts_core.models import Documents
from tts_core.speed import Speed
from tts_core.text.byte_bpe import byte_signs


def _layers(configs: Configs) -> int:
    """Count the calls of layers in a frame: the depformer's run once for each code after the first."""
    config = config_of(configs, "dia2", Dia2Config)
    stages = config.n_streams - 1
    return config.transformer.num_hidden_layers + stages * config.depformer.num_hidden_layers


def _reads(name: str) -> bool:
    """Exclude tables of which a frame reads only its own entries.

    The depformer's weights count once; where no cache holds them, a frame reads them for every stage again.
    """
    return ".audio_embeds." not in name and not name.endswith("text_embed.embedding.weight")


def _documents(configs: Configs) -> Documents:
    """Build a tokenizer of single bytes and the speakers' tags."""
    signs = byte_signs()
    read = {
        "added_tokens": [{"id": 256 + place, "content": tag} for place, tag in enumerate(SPEAKERS)],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        "model": {"type": "BPE", "vocab": {sign: place for place, sign in enumerate(signs)}, "merges": []},
    }
    return {"dia2": {FILE: json.dumps(read)}, "mimi": {}}


SPEED = Speed(
    stages=("prompt", "speech"),
    unit="frame",
    steps_per_frame=1,
    frame_rate=lambda configs: config_of(configs, "mimi", MimiConfig).frame_rate,
    layers=_layers,
    reads=_reads,
    text="[S1] The quick brown fox jumps over the lazy dog near the river bank.",
    documents=_documents,
)

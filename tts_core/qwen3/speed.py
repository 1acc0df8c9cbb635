"""Facts about Qwen3-TTS for `mlx-port bench`."""

from __future__ import annotations

import json

from tts_core.codecs.qwen3_codec import Qwen3CodecConfig
from tts_core.config import Configs, config_of
from tts_core.models import Documents
from tts_core.qwen3.config import VOICE_DESIGN, Qwen3Config
from tts_core.qwen3.sampling import GENERATION
from tts_core.qwen3.tokenizer import CONFIG, MERGES, VOCABULARY
from tts_core.speed import Speed
from tts_core.text.byte_bpe import byte_signs


def _layers(configs: Configs) -> int:
    """Count the calls of layers in a frame: the predictor's run once for each code."""
    config = config_of(configs, "qwen3", Qwen3Config)
    return config.talker.num_hidden_layers + config.n_codebooks * config.predictor.num_hidden_layers


def _reads(name: str) -> bool:
    """Exclude tables of which a frame reads only its own entries, and the speaker encoder.

    The predictor's weights count once; where no cache holds them, a frame reads them for every stage again.
    """
    return not ("_embedding." in name or name.startswith("speaker_encoder."))


def _documents(configs: Configs) -> Documents:
    """Build a tokenizer of single bytes and the template's tags."""
    config = config_of(configs, "qwen3", Qwen3Config)
    added = {config.im_start_id: "<|im_start|>", config.im_end_id: "<|im_end|>"}
    vocabulary = {sign: place for place, sign in enumerate(byte_signs())}
    read = {"added_tokens_decoder": {str(id): {"content": token} for id, token in added.items()}}
    own = {VOCABULARY: json.dumps(vocabulary), MERGES: "", CONFIG: json.dumps(read), GENERATION: "{}"}
    return {"qwen3": own, "qwen3_codec": {}}


def _options(configs: Configs) -> dict[str, str]:
    """Name what the checkpoint's mode needs."""
    config = config_of(configs, "qwen3", Qwen3Config)
    if config.mode == VOICE_DESIGN:
        return {"instruct": "A calm voice."}
    return {"voice": config.speakers[0].name} if config.speakers else {}


SPEED = Speed(
    stages=("prompt", "speech"),
    unit="frame",
    steps_per_frame=1,
    frame_rate=lambda configs: config_of(configs, "qwen3_codec", Qwen3CodecConfig).frame_rate,
    layers=_layers,
    reads=_reads,
    text="The quick brown fox jumps over the lazy dog near the river bank.",
    documents=_documents,
    options=_options,
)

"""Reading of Mimi's configuration as published: the config.json of transformers' MimiModel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tts_core.codecs.mimi import STEPS, MimiConfig
from tts_core.codecs.published import HARMLESS
from tts_core.config import FileForm
from tts_core.errors import CheckpointError

_FIXED = {  # the only supported values
    "audio_channels": 1,
    "use_causal_conv": True,
    "use_conv_shortcut": False,
    "pad_mode": "constant",
    "trim_right_ratio": 1.0,
    "hidden_act": "gelu",
    "attention_bias": False,
}
_UNUSED = (
    "layer_scale_initial_scale",  # of training
    "attention_dropout",
    "max_position_embeddings",  # not a limit: positions are relative
    "use_cache",
    "use_streaming",
    "tie_word_embeddings",  # nothing to tie
    "chunk_size_feed_forward",
    "id2label",
    "label2id",
    "is_encoder_decoder",
    "problem_type",
)
_FILE = FileForm(
    "Mimi config.json",
    unused={"": (*HARMLESS, *_UNUSED, "frame_rate", "_frame_rate")},
    fixed=_FIXED | {"normalize": False, "rope_parameters.rope_type": "default"},
    equal={"vector_quantization_hidden_dimension": "codebook_dim", "upsample_groups": "hidden_size"},
    needs=_FIXED,
    support="only the causal mono Mimi is supported",
)


def read_transformers(config: Mapping[str, Any]) -> MimiConfig:
    """Read the configuration from the config.json of a transformers MimiModel, before or since version 5."""
    read = MimiConfig.read(_FILE, config)
    rate, steps = (
        config.get("frame_rate", config.get("_frame_rate")),
        math.ceil(read.sample_rate / read.step_length),
    )
    if rate is None:
        return read
    is_rate = isinstance(rate, int | float) and not isinstance(rate, bool) and rate > 0
    if not is_rate or steps // rate != STEPS:
        raise CheckpointError(f"Mimi config.json: frame_rate {rate!r:.40}, expected {steps / STEPS:g}")
    return read

"""Reading of Mimi's configuration as published: the config.json of transformers' MimiModel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tts_core.codecs.mimi import STEPS, MimiConfig
from tts_core.codecs.published import published_fields
from tts_core.config import mapping
from tts_core.errors import CheckpointError

_RATIOS = "upsampling_ratios"
_TRANSFORMERS = (
    "hidden_size",
    "num_filters",
    "num_residual_layers",
    "dilation_growth_rate",
    "kernel_size",
    "last_kernel_size",
    "residual_kernel_size",
    "compress",
    "num_hidden_layers",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "norm_eps",
    "sliding_window",
    "codebook_size",
    "codebook_dim",
)
_RENAMED = {
    "sampling_rate": "sample_rate",
    "num_quantizers": "n_codebooks",
    "num_semantic_quantizers": "n_semantic",
}
_FIXED = {  # the only supported values
    "audio_channels": 1,
    "use_causal_conv": True,
    "use_conv_shortcut": False,
    "pad_mode": "constant",
    "trim_right_ratio": 1.0,
    "hidden_act": "gelu",
    "attention_bias": False,
}
_DERIVED = (
    "frame_rate",
    "_frame_rate",
    "rope_theta",
    "rope_parameters",
    "vector_quantization_hidden_dimension",
    "upsample_groups",
    "normalize",
)
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


def read_transformers(config: Mapping[str, Any]) -> MimiConfig:
    """Read the configuration from the config.json of a transformers MimiModel, before or since version 5."""
    needed, unused = (*_TRANSFORMERS, *_RENAMED, _RATIOS), (*_DERIVED, *_UNUSED)
    support = "only the causal mono Mimi is supported"
    config = published_fields(config, "Mimi config.json", needed, _FIXED, unused, support=support)
    ratios = config[_RATIOS]
    if not isinstance(ratios, list | tuple):
        raise CheckpointError(f"Mimi config.json: {_RATIOS} {ratios!r:.40} is not a list")
    sizes = {name: config[name] for name in _TRANSFORMERS}
    read = MimiConfig(
        **sizes,
        **{ours: config[theirs] for theirs, ours in _RENAMED.items()},
        upsampling_ratios=tuple(ratios),
        rope_theta=_theta(config),
    )
    _check_derived(config, read)
    return read


def _theta(config: Mapping[str, Any]) -> Any:
    """Return the base of the rotary angles: a field of its own, or one of `rope_parameters`."""
    if "rope_theta" in config:
        return config["rope_theta"]
    rope = mapping(config.get("rope_parameters"), "Mimi config.json: rope_parameters")
    if rope.get("rope_type", "default") != "default":
        raise CheckpointError(
            f"Mimi config.json: rope_type {rope['rope_type']!r:.40}; only default is supported"
        )
    return rope.get("rope_theta")


def _check_derived(config: Mapping[str, Any], read: MimiConfig) -> None:
    """Raise CheckpointError for fields that contradict the sizes that we derive them from."""
    rate = config.get("frame_rate", config.get("_frame_rate"))
    steps = math.ceil(read.sample_rate / read.step_length)
    faults = []
    if rate is not None and (not isinstance(rate, int | float) or rate <= 0 or int(steps / rate) != STEPS):
        faults.append(f"frame_rate {rate!r:.40}, expected {steps / STEPS:g}")
    expected = {
        "vector_quantization_hidden_dimension": read.codebook_dim,
        "upsample_groups": read.hidden_size,
        "normalize": False,
    }
    faults += [
        f"{name} {config[name]!r:.40}, expected {value}"
        for name, value in expected.items()
        if config.get(name, value) != value
    ]
    if faults:
        raise CheckpointError(f"Mimi config.json: {'; '.join(faults)}; this variant is not supported")

"""Dia's layers in order.

State: ids (1, S) and zero (1, 1), text and nothing (1, ·, source width), tokens (R, T, C), rows (R, T, D),
keys and values (1, H, S, E), logits (R, T, C, V). R: conditional and unconditional rows.
"""

from __future__ import annotations

from dataclasses import replace

from tts_core.dia.config import DiaConfig
from tts_core.nn.layer_order import APPLIED, Stage, stage, stages


def dia_stages(config: DiaConfig) -> list[Stage]:
    """List the layers from text ids and grid rows to logits."""
    encoder, decoder = config.encoder_config, config.decoder_config
    return [
        stage("text_embedding", "model.encoder.embedding", "text", "nothing"),
        *stages("encoder_layer", "model.encoder.layers", encoder.num_hidden_layers, "text", "nothing"),
        stage(APPLIED, "model.encoder.norm", "text", "nothing"),
        stage("row_embedding", "model.decoder.embeddings", "rows"),
        *map(_with_source, stages("decoder_layer", "model.decoder.layers", decoder.num_hidden_layers)),
        stage(APPLIED, "model.decoder.norm", "rows"),
        stage("head", "logits_dense", "logits"),
    ]


def _with_source(layer: Stage) -> Stage:
    """Split off the projection of cross-attention's keys and values as a stage of its own."""
    return replace(
        layer, compared={f"{layer.name}.cross_attention": ("keys", "values"), layer.name: ("rows",)}
    )

"""Dia2's layers in order.

State: tokens (R, T, 2 + Q), rows (R, T, D), actions (R, T, A), logits (R, T, V); previous (F, Q - 1), the
codes that the stages read, text (F, 2), frames (F, D), stages (F, Q - 1, E), codes (F, Q - 1, N), the
depformer's logits. R: rows, F: frames, N: codebook size.
"""

from __future__ import annotations

from tts_core.dia2.config import Dia2Config
from tts_core.nn.layer_order import APPLIED, Stage, stage, stages


def transformer_stages(config: Dia2Config) -> list[Stage]:
    """List the layers from the ids of a step to its action and its first code."""
    streams = [f"transformer.audio_embeds.{stream}" for stream in range(config.n_streams)]
    return [
        stage("row_embedding", "transformer.text_embed", "rows", beside=tuple(streams)),
        *stages("layer", "transformer.layers", config.transformer.num_hidden_layers, "rows"),
        stage(APPLIED, "transformer.norm", "rows"),
        stage("action_head", "transformer.action_head", "actions"),
        stage("code_head", "transformer.cb0_head", "logits"),
    ]


def depformer_stages(config: Dia2Config) -> list[Stage]:
    """List the layers from a step's output and codes to the logits of every further code."""
    count = config.n_streams - 1
    beside = [f"depformer.audio_embeds.{place}" for place in range(count)]
    beside += [f"depformer.depformer_in.{place}" for place in range(1, len(config.weight_sets))]
    beside += ["depformer.text_embed"] if config.depformer_has_text else []
    heads = tuple(f"depformer.logits.{place}" for place in range(1, count))
    return [
        stage("stage_embedding", "depformer.depformer_in.0", "stages", beside=tuple(beside)),
        *stages("stage_layer", "depformer.layers", config.depformer.num_hidden_layers, "stages"),
        stage(APPLIED, "depformer.norm", "stages"),
        stage("stage_heads", "depformer.logits.0", "codes", beside=heads),
    ]

"""The layers of MetaVoice's networks in order.

State of the speaker encoder: slices (P, T, mels), state0, state1 .. (2, P, H), each layer's last hidden and
cell values, vectors (P, E), speaker (E,). Of both stages: embeddings (R, E), voice (R, 1, D), rows (R, T, D).
First stage only: tokens (R, T), last (R, T, D), logits (R, T, V). Second stage only: tokens
(1, rows, T), logits0, logits1 .. (1, T, V), one per codebook.
"""

from __future__ import annotations

from tts_core.metavoice.config import FirstStageConfig, SecondStageConfig, SpeakerEncoderConfig
from tts_core.nn.layer_order import APPLIED, Stage, stage, stages


def speaker_encoder_stages(config: SpeakerEncoderConfig) -> list[Stage]:
    """List the layers from mel slices to a voice's vector."""
    layers = range(config.num_hidden_layers)
    return [
        Stage("lstm", "lstm", ("lstm",), {f"lstm, layer {i}": (f"state{i}",) for i in layers}, layers[-1]),
        Stage("linear", "linear", ("linear",), {"linear": ("vectors",), "mean": ("speaker",)}, layers[-1]),
    ]


def first_stage_stages(config: FirstStageConfig) -> list[Stage]:
    """List the layers from a voice's vector and ids to logits; the head is the embedding."""
    return [
        stage("speakers", "speaker_cond_pos", "voice"),
        stage("embedding", "transformer.wtes.0", "rows", beside=("transformer.wpe",)),
        *stages("layer", "transformer.h", config.num_hidden_layers, "rows"),
        stage("norm", "transformer.ln_f", "last"),
        Stage("head", "head", ("transformer.wtes.0",), {"head": ("logits",)}),
    ]


def second_stage_stages(config: SecondStageConfig) -> list[Stage]:
    """List the layers from a voice's vector and rows of ids to logits of the other codebooks."""
    heads = range(len(config.target_vocab_sizes))
    tables = [f"transformer.wtes.{i}" for i in range(len(config.vocab_sizes))]
    return [
        stage("speakers", "speaker_cond_pos", "voice"),
        Stage("transformer.wtes", "embedding", (*tables, "transformer.wpe"), {"transformer.wtes": ("rows",)}),
        *stages(APPLIED, "transformer.h", config.num_hidden_layers, "rows"),
        stage(APPLIED, "transformer.ln_f", "rows"),
        Stage(
            "lm_heads",
            "heads",
            tuple(f"lm_heads.{q}" for q in heads),
            {f"lm_heads.{q}": (f"logits{q}",) for q in heads},
        ),
    ]

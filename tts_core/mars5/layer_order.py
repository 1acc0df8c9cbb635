"""The layers of MARS5's networks in order.

State of both: reference (1, P, Q) codes, ids (1, N), heard (1, P + 1, D), the reference before it is reduced
to one vector. AR only: speaker (1, D), rows (1, N + 1, D), logits (1, N + 1, V). NAR only: nothing
(1, 1, D), like `heard` without a reference, speakers (2, D), codes (1, S, Q), timestep
(1,), words and text (2, N + 1, D), encoder_steps and decoder_steps (T, D), frames (1 or 2, S, D), memory
(2, N + 1, D), logits0, logits1 .. (2, S, K), one per codebook.
"""

from __future__ import annotations

from tts_core.mars5.config import CodecLMConfig, ResidualTransformerConfig
from tts_core.nn.layer_order import APPLIED, Stage, stage, stages


def codec_lm_stages(config: CodecLMConfig) -> list[Stage]:
    """List the layers from a reference and ids to logits."""
    return [
        stage("reference", "ref_chunked_emb", "heard", beside=("spk_identity_emb", "pos_embedding")),
        *stages(APPLIED, "spk_encoder.layers", config.speaker_layers, "heard"),
        stage("speaker_norm", "spk_encoder.norm", "speaker"),
        stage("embedding", "embed", "rows"),
        *stages("layer", "ar.layers", config.num_hidden_layers, "rows"),
        stage(APPLIED, "ar.norm", "rows"),
        stage("head", "ar.output", "logits"),
    ]


def residual_transformer_stages(config: ResidualTransformerConfig) -> list[Stage]:
    """List the layers from a reference, text and noisy codes to logits, with and without a speaker."""
    steps = [f"timestep_{half}_emb.{i}" for half in ("encoder", "decoder") for i in (0, 2)]
    heads = range(config.n_output_codebooks)
    return [
        stage(
            "reference", "ref_embedder", "heard", "nothing", beside=("spk_identity_emb", "ref_pos_embedding")
        ),
        *stages(APPLIED, "spk_encoder.layers", config.speaker_layers, "heard", "nothing"),
        stage("speaker_norm", "spk_encoder.norm", "speakers"),
        Stage(
            "inputs",
            "inputs",
            ("text_embed", "cond_pos_embedding", "pos_embedding", "residual_encoder", *steps),
            {
                "text_embed": ("words",),
                "timestep_encoder_emb": ("encoder_steps",),
                "timestep_decoder_emb": ("decoder_steps",),
                "residual_encoder": ("frames",),
            },
        ),
        *stages(APPLIED, "tfm.encoder.layers", config.encoder_layers, "text"),
        stage("encoder_norm", "tfm.encoder.norm", "memory"),
        *stages("decoder_layer", "tfm.decoder.layers", config.decoder_layers, "frames"),
        stage(APPLIED, "tfm.decoder.norm", "frames"),
        Stage(
            "residual_decoder",
            "heads",
            tuple(f"residual_decoder.{q}.{i}" for q in heads for i in (0, 1)),
            {f"residual_decoder.{q}": (f"logits{q}",) for q in heads},
        ),
    ]

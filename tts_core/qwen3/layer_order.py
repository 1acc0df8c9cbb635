"""Qwen3-TTS's layers in order.

State: text (R, T) ids, frames (R, Q, T) codes, texts and rows (R, T, D), logits (R, T, V); read (R, T, Q, D),
embeddings of a frame's codes; stages (F, Q, D or E), what the predictor reads of a frame, and codes
(F, Q - 1, V'), its logits; hidden (B, C, T), the speaker encoder's, skip (B, 3 C, T), its blocks' outputs,
moments (B, 6 C) and vector (B, D). R: rows, F: frames.
"""

from __future__ import annotations

from tts_core.nn.layer_order import APPLIED, Stage, stage, stages
from tts_core.qwen3.config import Qwen3Config


def talker_stages(config: Qwen3Config) -> list[Stage]:
    """List the layers from ids and codes to the logits of first codes."""
    others = [f"talker.code_predictor.model.codec_embedding.{q}" for q in range(config.n_codebooks - 1)]
    return [
        stage("text_embedding", "talker.model.text_embedding", "texts", beside=("talker.text_projection",)),
        stage("frame_embedding", "talker.model.codec_embedding", "rows", beside=tuple(others)),
        *stages("layer", "talker.model.layers", config.talker.num_hidden_layers, "rows"),
        stage(APPLIED, "talker.model.norm", "rows"),
        stage("code_head", "talker.codec_head", "logits"),
    ]


def predictor_stages(config: Qwen3Config) -> list[Stage]:
    """List the layers from a frame's hidden state and its codes' embeddings to the logits of other codes."""
    at, count = "talker.code_predictor", config.n_codebooks - 1
    heads = tuple(f"{at}.lm_head.{q}" for q in range(1, count))
    projection = stage(APPLIED, f"{at}.small_to_mtp_projection", "stages")
    return [
        *([projection] if config.is_projected else []),
        *stages("stage_layer", f"{at}.model.layers", config.predictor.num_hidden_layers, "stages"),
        stage(APPLIED, f"{at}.model.norm", "stages"),
        stage("stage_heads", f"{at}.lm_head.0", "codes", beside=heads),
    ]


def speaker_stages(config: Qwen3Config) -> list[Stage]:
    """List the layers of the speaker encoder from mel frames, in `hidden`; none without one."""
    encoder, part = config.speaker_encoder, "speaker_encoder"
    if encoder is None:
        return []
    return [
        stage("speaker_input", f"{part}.blocks.0", "hidden"),
        *(
            stage("speaker_block", f"{part}.blocks.{i}", "hidden", index=i)
            for i in range(1, len(encoder.enc_channels) - 1)
        ),
        stage("speaker_sum", f"{part}.mfa", "hidden"),
        stage("speaker_moments", f"{part}.asp", "moments"),
        stage("speaker_vector", f"{part}.fc", "vector"),
    ]

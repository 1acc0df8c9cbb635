"""MARS5's residual transformer: noisy codes of all codebooks in, logits of the clean ones out.

Upstream: Camb-ai/MARS5-TTS@84697c8 (AGPL-3.0); written from a description, none of its code was used.
Parameter names are the published ones.
Differs from upstream: sines are computed in float64 and rounded once; conditional and unconditional rows
share all inputs that do not depend on the speaker; the unconditional speaker, upstream a single visible row
in a masked reference, is computed from only that row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import mlx.core as mx
import numpy as np
from mlx import nn

from mlx_port.layers.norm import LayerNorm
from mlx_port.mars5.encoder import (
    ChunkedEmbedding,
    Encoder,
    MultiheadAttention,
    SinePositions,
    SwiGLU,
    speaker_vector,
)
from tts_core.mars5.config import ResidualTransformerConfig
from tts_core.nn.positions import timestep_table


class Mars5Source(NamedTuple):
    """Inputs that are the same for all timesteps, computed once per run.

    text: (R, N + 1, D), after speaker vectors; R rows may share one row of codes.
    positions: (S, D).
    encoder_steps, decoder_steps: (T, D), one vector per timestep; all of them float32.
    text_mask: (R, 1, 1, N + 1), frame_mask: (B, 1, 1, S), True at valid positions; None if all are.
    """

    text: mx.array
    positions: mx.array
    encoder_steps: mx.array
    decoder_steps: mx.array
    text_mask: mx.array | None = None
    frame_mask: mx.array | None = None


class DecoderLayer(nn.Module):
    """Pre-norm self-attention, cross-attention and feed-forward. (B, S, D) → (R, S, D)."""

    def __init__(self, width: int, heads: int, inner: int, eps: float):
        super().__init__()
        self.self_attn = MultiheadAttention(width, heads)
        self.multihead_attn = MultiheadAttention(width, heads)
        self.linear2 = nn.Linear(inner, width)
        self.norm1 = LayerNorm(width, eps)
        self.norm2 = LayerNorm(width, eps)
        self.norm3 = LayerNorm(width, eps)
        self.activation = SwiGLU(width, inner)

    def __call__(
        self,
        x: mx.array,
        memory: mx.array,
        mask: mx.array | None,
        memory_mask: mx.array | None,
    ) -> mx.array:
        """memory: (R, N + 1, D); if x has one row, all of memory's rows share it."""
        x = x + self.self_attn(self.norm1(x), mask=mask)
        x = x + self.multihead_attn(self.norm2(x), memory, memory_mask)
        return x + self.linear2(self.activation(self.norm3(x).astype(self.linear2.bias.dtype)))


class Decoder(nn.Module):
    """Layers over frames with attention to encoded text, and a last norm. (B, S, D) → (R, S, D)."""

    def __init__(self, width: int, heads: int, inner: int, layers: int, eps: float):
        super().__init__()
        self.layers = [DecoderLayer(width, heads, inner, eps) for _ in range(layers)]
        self.norm = LayerNorm(width, eps)

    def __call__(
        self,
        x: mx.array,
        memory: mx.array,
        mask: mx.array | None,
        memory_mask: mx.array | None,
    ) -> mx.array:
        for layer in self.layers:
            x = layer(x, memory, mask, memory_mask)
        return self.norm(x)


class Transformer(nn.Module):
    """Encoder and decoder under the prefix of the published names."""

    def __init__(self, config: ResidualTransformerConfig):
        super().__init__()
        sizes = config.hidden_size, config.num_attention_heads, config.intermediate_size
        self.encoder = Encoder(*sizes, config.encoder_layers, config.norm_eps)
        self.decoder = Decoder(*sizes, config.decoder_layers, config.norm_eps)


class ResidualTransformer(nn.Module):
    """The whole network. Codes are (B, S, Q): frames, then codebooks."""

    def __init__(self, config: ResidualTransformerConfig):
        super().__init__()
        self.config = config
        width, rows = config.hidden_size, config.codebook_rows
        self.text_embed = nn.Embedding(config.text_rows, width)
        self.cond_pos_embedding = SinePositions(width)
        self.pos_embedding = SinePositions(width)
        self.ref_pos_embedding = SinePositions(width)
        self.ref_embedder = ChunkedEmbedding(config.n_codebooks, rows, width)
        self.residual_encoder = ChunkedEmbedding(config.n_codebooks, rows, width)
        self.spk_identity_emb = nn.Embedding(1, width)
        self.spk_encoder = Encoder(
            width,
            config.speaker_heads,
            config.speaker_intermediate_size,
            config.speaker_layers,
            config.norm_eps,
        )
        self.timestep_encoder_emb = _timestep_mlp(config)
        self.timestep_decoder_emb = _timestep_mlp(config)
        self.tfm = Transformer(config)
        self.residual_decoder = [  # lists keep the published names, nn.Sequential would not
            [LayerNorm(width, config.head_norm_eps), nn.Linear(width, config.n_classes)]
            for _ in range(config.n_output_codebooks)
        ]

    def speaker(self, codes: mx.array, lengths: mx.array | None = None) -> mx.array:
        """Encode the reference as one vector. (B, P, Q) → (B, D).  lengths: (B,) frames without padding."""
        positions = self.ref_pos_embedding(codes.shape[1] + 1)
        mask = None if lengths is None else _visible(codes.shape[1] + 1, lengths + 1)
        return speaker_vector(
            self.spk_encoder, self.spk_identity_emb.weight, self.ref_embedder(codes), positions, mask
        )

    def no_speaker(self) -> mx.array:
        """Compute the unconditional rows' vector, a constant of the checkpoint. → (1, D)."""
        empty = mx.zeros((1, 0, self.config.hidden_size), self.spk_identity_emb.weight.dtype)
        positions = self.ref_pos_embedding(1)
        return speaker_vector(self.spk_encoder, self.spk_identity_emb.weight, empty, positions, None)

    def read(
        self,
        text: mx.array,
        speakers: mx.array,
        *,
        frames: int,
        timesteps: int,
        text_lengths: mx.array | None = None,
        frame_lengths: mx.array | None = None,
    ) -> Mars5Source:
        """Embed the inputs that do not depend on the timestep.

        text: (B, N) ids.
        speakers: (R, D); for B = 1 any number of rows share the text.
        text_lengths, frame_lengths: (B,), without padding; None if nothing is padded.
        """
        words = self.text_embed(text).astype(mx.float32)
        words = mx.broadcast_to(words, (len(speakers), *words.shape[1:]))
        rows = mx.concatenate([speakers[:, None], words], axis=1)
        count = rows.shape[1]
        return Mars5Source(
            rows + self.cond_pos_embedding(count),
            self.pos_embedding(frames),
            self._steps(self.timestep_encoder_emb, timesteps),
            self._steps(self.timestep_decoder_emb, timesteps),
            None if text_lengths is None else _visible(count, text_lengths + 1),
            None if frame_lengths is None else _visible(frames, frame_lengths),
        )

    def _steps(self, mlp: Sequence[nn.Module], timesteps: int) -> mx.array:
        features = mx.array(timestep_table(timesteps, self.config.timestep_size).astype(np.float32))
        first, silu, second = mlp
        return second(silu(first(features.astype(self.text_embed.weight.dtype)))).astype(mx.float32)

    def __call__(self, codes: mx.array, source: Mars5Source, t: mx.array) -> mx.array:
        """Compute all logits. codes: (B, S, Q); t: (B,) or (1,) int → (R, S, Q, K), float32."""
        return self.head(self.hidden(codes, source, t), range(self.config.n_output_codebooks))

    def hidden(self, codes: mx.array, source: Mars5Source, t: mx.array) -> mx.array:
        """Compute the heads' input. (B, S, Q) → (R, S, D)."""
        memory = self.tfm.encoder(self.encoder_input(source, t), source.text_mask)
        memory = memory.astype(self.text_embed.weight.dtype)  # once for all layers
        frames = self.decoder_input(codes, source, t)
        return self.tfm.decoder(frames, memory, source.frame_mask, source.text_mask)

    def encoder_input(self, source: Mars5Source, t: mx.array) -> mx.array:
        """Add timesteps to the text rows. → (R, N + 1, D)."""
        return source.text + source.encoder_steps[t][:, None]

    def decoder_input(self, codes: mx.array, source: Mars5Source, t: mx.array) -> mx.array:
        """Embed codes and add timesteps. (B, S, Q) → (B, S, D)."""
        embedded = self.residual_encoder(codes).astype(mx.float32)
        return embedded + source.positions + source.decoder_steps[t][:, None]

    def head(self, hidden: mx.array, codebooks: Sequence[int]) -> mx.array:
        """Compute some codebooks' logits. (R, S, D) → (R, S, len(codebooks), K), cast after the products."""
        logits = []
        for q in codebooks:
            norm, linear = self.residual_decoder[q]
            logits.append(linear(norm(hidden).astype(linear.bias.dtype)).astype(mx.float32))
        return mx.stack(logits, axis=2)


def _timestep_mlp(config: ResidualTransformerConfig) -> list[nn.Module]:
    width = config.hidden_size
    return [nn.Linear(config.timestep_size, width), nn.SiLU(), nn.Linear(width, width)]


def _visible(count: int, lengths: mx.array) -> mx.array:
    """Build a mask, True below each length. (B,) → (B, 1, 1, count)."""
    return (mx.arange(count) < lengths[:, None])[:, None, None]

"""Dia over whole sequences at once, as training needs it: the network's own modules, no cache, padded texts.

tests/examples holds it against the network's own forward pass.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from examples.train_voice.dialogues import Batch
from torch_ref.dia.dia import SCALE, DecoderLayer, Dia, EncoderLayer, SelfAttention, merge_heads, split_heads
from torch_ref.layers.rope import Rotation, rotate

GUIDED_LAYER = 1  # of the decoder: its first cross-attention head is pulled to the diagonal
GUIDE_WIDTH = 8.0  # tokens
IGNORED = -100


class Losses(NamedTuple):
    """total: what is minimised.  channels: (C,) cross-entropy of each.  guide: attention off the diagonal."""

    total: Tensor
    channels: Tensor
    guide: Tensor


def delayed(
    codes: Tensor, frames: Tensor, delays: tuple[int, ...], bos: int, pad: int
) -> tuple[Tensor, Tensor]:
    """Grid rows and which of them are drawn by the model.

    codes: (B, T + 1, C) with EOS behind each example's frames (B,). → rows (B, 2 + T + longest delay, C),
    and a mask of the same shape: codes, and channel 0's EOS.
    """
    batch, length, channels = codes.shape
    rows = codes.new_full((batch, 1 + length + max(delays), channels), pad)
    drawn = torch.zeros_like(rows, dtype=torch.bool)
    real = torch.arange(length, device=codes.device) < frames[:, None]  # (B, T + 1)
    first = torch.arange(length, device=codes.device) <= frames[:, None]
    for channel, delay in enumerate(delays):
        rows[:, : 1 + delay, channel] = bos
        rows[:, 1 + delay : 1 + delay + length, channel] = codes[:, :, channel]
        drawn[:, 1 + delay : 1 + delay + length, channel] = first if channel == 0 else real
    return rows, drawn


def attend(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, *, causal: bool = False
) -> Tensor:
    """Grouped-query attention without a mask on keys' heads. (B, H, T, E), (B, K, S, E) → (B, T, H·E)."""
    group = queries.shape[1] // keys.shape[1]
    if group > 1:
        keys, values = (x.repeat_interleave(group, dim=1) for x in (keys, values))
    return merge_heads(
        F.scaled_dot_product_attention(queries, keys, values, mask, is_causal=causal, scale=SCALE)
    )


def self_attend(layer: SelfAttention, x: Tensor, rotation: Rotation, mask: Tensor | None) -> Tensor:
    """With a mask over texts, or causal without one."""
    queries = rotate(split_heads(layer.q_proj(x), layer.head_dim), rotation)
    keys = rotate(split_heads(layer.k_proj(x), layer.head_dim), rotation)
    values = split_heads(layer.v_proj(x), layer.head_dim)
    return layer.o_proj(attend(queries, keys, values, mask, causal=mask is None))


def encoder_layer(layer: EncoderLayer, x: Tensor, rotation: Rotation, mask: Tensor) -> Tensor:
    x = x + self_attend(layer.self_attention, layer.pre_sa_norm(x), rotation, mask)
    return x + layer.mlp(layer.post_sa_norm(x))


def decoder_layer(
    layer: DecoderLayer, x: Tensor, rotation: Rotation, encoded: Tensor, mask: Tensor
) -> Tensor:
    x = x + self_attend(layer.self_attention, layer.pre_sa_norm(x), rotation, None)
    cross = layer.cross_attention
    queries = split_heads(cross.q_proj(layer.pre_ca_norm(x)), cross.head_dim)
    keys, values = cross.project(encoded, None)
    x = x + cross.o_proj(attend(queries, keys, values, mask))
    return x + layer.mlp(layer.pre_mlp_norm(x))


class Teacher(nn.Module):
    """Losses of a batch, each row predicted from the true ones before it."""

    def __init__(self, network: Dia, text_dropout: float):
        super().__init__()
        self.network, self.text_dropout = network, text_dropout
        channels = torch.arange(network.config.decoder_config.num_channels)
        weights = 1 / (1 + channels / 4)
        self.register_buffer("weights", weights / weights.sum(), persistent=False)

    def encode(self, ids: Tensor, mask: Tensor) -> Tensor:
        """ids: (B, S), mask: (B, 1, 1, S) True at text → (B, S, D)."""
        encoder = self.network.model.encoder
        x, rotation = encoder.embedding(ids), encoder.rotary(0, ids.shape[1])
        for layer in cast(list[EncoderLayer], encoder.layers):
            x = encoder_layer(layer, x, rotation, mask)
        return encoder.norm(x)

    def logits(self, rows: Tensor, encoded: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """rows: (B, R, C) → logits (B, R, C, V) float32, and what the guided layer read (B, R, D)."""
        decoder = self.network.model.decoder
        x, rotation = decoder.embeddings(rows), decoder.rotary(0, rows.shape[1])
        read = x
        for index, layer in enumerate(cast(list[DecoderLayer], decoder.layers)):
            read = x if index == GUIDED_LAYER else read
            x = decoder_layer(layer, x, rotation, encoded, mask)
        return self.network.head(decoder.norm(x)), read

    def guide(self, read: Tensor, encoded: Tensor, mask: Tensor, where: Tensor, rows: Tensor) -> Tensor:
        """The share of one head's attention that lies far from where speech and text should meet.

        read: (B, R, D) what the layer read.  where: (B, T).  rows: (B, R) True in speech.
        """
        layer = cast(DecoderLayer, self.network.model.decoder.layers[GUIDED_LAYER])
        cross = layer.cross_attention
        queries = split_heads(cross.q_proj(layer.pre_ca_norm(read)), cross.head_dim)[:, 0]
        keys = cross.project(encoded, None)[0][:, 0]
        scores = (queries @ keys.transpose(1, 2)).float().masked_fill(~mask[:, 0], -torch.inf)
        expected = F.pad(where[:, None], (0, rows.shape[1] - where.shape[1]), mode="replicate")[:, 0]
        places = torch.arange(encoded.shape[1], device=scores.device)
        off = 1 - torch.exp(-(((places - expected[:, :, None]) / GUIDE_WIDTH) ** 2) / 2)
        share = (scores.softmax(-1) * off).sum(-1)
        return (share * rows).sum() / rows.sum().clamp_min(1)

    def forward(self, batch: Batch, guide_weight: float) -> Losses:
        config = self.network.config
        ids = batch.ids
        if self.training:
            without = torch.rand(len(ids), 1, device=ids.device) < self.text_dropout
            ids = ids.masked_fill(without, 0)
        else:
            without = torch.zeros(len(ids), 1, dtype=torch.bool, device=ids.device)
        mask = (torch.arange(ids.shape[1], device=ids.device) < batch.texts[:, None])[:, None, None]
        rows, drawn = delayed(
            batch.codes, batch.frames, config.delay_pattern, config.bos_token_id, config.pad_token_id
        )
        # a prompt's frames stand in every channel up to its end, and are not learned
        learned = torch.arange(rows.shape[1], device=ids.device)[None, :, None] - 1 >= (
            batch.prompts[:, None, None] + torch.tensor(config.delay_pattern, device=ids.device)
        )
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=ids.device.type == "cuda"):
            encoded = self.encode(ids, mask)
            logits, read = self.logits(rows[:, :-1], encoded, mask)
            guide = logits.new_zeros(())
            if guide_weight:
                speech = torch.arange(rows.shape[1] - 1, device=ids.device) < batch.frames[:, None]
                guide = self.guide(read, encoded, mask, batch.where, speech & ~without)
        targets = rows[:, 1:].masked_fill(~(drawn & learned)[:, 1:], IGNORED)
        per_row = F.cross_entropy(
            logits.flatten(0, 2), targets.flatten(), ignore_index=IGNORED, reduction="none"
        ).view(targets.shape)
        counted = (targets != IGNORED).sum((0, 1)).clamp_min(1)
        channels = per_row.sum((0, 1)) / counted
        total = (channels * self.get_buffer("weights")).sum() + guide_weight * guide
        return Losses(total, channels.detach(), guide.detach())

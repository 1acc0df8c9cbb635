"""Dia over whole sequences for training, with the network's modules, padded texts and no cache.

tests/examples compares it with the network's own forward pass.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from examples.train_voice.dialogues import IGNORED, Batch
from examples.train_voice.flite import PHONES
from torch_ref.dia.dia import SCALE, DecoderLayer, Dia, EncoderLayer, SelfAttention, merge_heads, split_heads
from torch_ref.layers.rope import Rotation, rotate

GUIDED_LAYERS = (
    1,
    3,
)  # of the decoder: their first cross-attention heads are trained to attend to the text being spoken
GUIDE_WIDTH = 1.25  # tokens
PHONE_WEIGHT = 0.5  # of each of the three phone losses


class Losses(NamedTuple):
    """Losses of a batch.

    total: to be minimized.  channels: (C,) cross-entropy of each.  guide: share of the guided heads'
    attention on the text being spoken.  phones: cross-entropy of each token's phone after the encoder, and
    of each frame's after each guided layer.
    """

    total: Tensor
    channels: Tensor
    guide: Tensor
    phones: Tensor


def delayed(
    codes: Tensor, frames: Tensor, delays: tuple[int, ...], bos: int, pad: int
) -> tuple[Tensor, Tensor]:
    """Build grid rows, and a mask of the codes that the model draws.

    codes: (B, T + 1, C) with EOS after each example's frames (B,). → rows (B, 2 + T + longest delay, C),
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
    """Grouped-query attention. (B, H, T, E), (B, K, S, E) → (B, T, H·E)."""
    group = queries.shape[1] // keys.shape[1]
    if group > 1:
        keys, values = (x.repeat_interleave(group, dim=1) for x in (keys, values))
    return merge_heads(
        F.scaled_dot_product_attention(queries, keys, values, mask, is_causal=causal, scale=SCALE)
    )


def self_attend(layer: SelfAttention, x: Tensor, rotation: Rotation, mask: Tensor | None) -> Tensor:
    """Self-attention with a mask over texts, or causal without one."""
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
    return listen(layer, x, encoded, mask)


def listen(layer: DecoderLayer, x: Tensor, encoded: Tensor, mask: Tensor) -> Tensor:
    """Run the rest of a layer, after its self-attention."""
    cross = layer.cross_attention
    queries = split_heads(cross.q_proj(layer.pre_ca_norm(x)), cross.head_dim)
    keys, values = cross.project(encoded, None)
    x = x + cross.o_proj(attend(queries, keys, values, mask))
    return x + layer.mlp(layer.pre_mlp_norm(x))


class Teacher(nn.Module):
    """Losses of a batch, with each row predicted from the true rows before it.

    Two additional heads predict phones from the encoder and from the decoder, because spelling is learned
    faster from phones than from codes. They are not exported.
    """

    def __init__(self, network: Dia):
        super().__init__()
        self.network = network
        config = network.config
        self.spelling = nn.Linear(config.encoder_config.hidden_size, len(PHONES))
        self.saying = nn.Linear(config.decoder_config.hidden_size, len(PHONES))
        channels = torch.arange(network.config.decoder_config.num_channels)
        weights = 1 / (1 + channels)
        self.register_buffer("weights", weights / weights.sum(), persistent=False)

    def encode(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Encode texts. ids: (B, S).  mask: (B, 1, 1, S), True at text.  → (B, S, D)."""
        encoder = self.network.model.encoder
        x, rotation = encoder.embedding(ids), encoder.rotary(0, ids.shape[1])
        for layer in cast(list[EncoderLayer], encoder.layers):
            x = encoder_layer(layer, x, rotation, mask)
        return encoder.norm(x)

    def logits(
        self, rows: Tensor, encoded: Tensor, mask: Tensor
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Compute logits. rows: (B, R, C).

        → (B, R, C, V) float32, and the guided layers' inputs and outputs, (B, R, D) each.
        """
        decoder = self.network.model.decoder
        x, rotation = decoder.embeddings(rows), decoder.rotary(0, rows.shape[1])
        read, written = [], []
        for index, layer in enumerate(cast(list[DecoderLayer], decoder.layers)):
            if index in GUIDED_LAYERS:
                x = x + self_attend(layer.self_attention, layer.pre_sa_norm(x), rotation, None)
                read.append(x)
                x = listen(layer, x, encoded, mask)
                written.append(x)
            else:
                x = decoder_layer(layer, x, rotation, encoded, mask)
        return self.network.head(decoder.norm(x)), read, written

    def guide(self, read: list[Tensor], encoded: Tensor, mask: Tensor, where: Tensor) -> Tensor:
        """Compute the share of each guided head's attention on the text being spoken. where: (B, T).

        → (guided, B, T)
        """
        layers = cast(list[DecoderLayer], self.network.model.decoder.layers)
        places = torch.arange(encoded.shape[1], device=encoded.device)
        weight = torch.exp(-(((places - where[:, :, None]) / GUIDE_WIDTH) ** 2) / 2)
        shares = []
        for index, x in zip(GUIDED_LAYERS, read, strict=False):
            layer = layers[index]
            cross = layer.cross_attention
            x = layer.pre_ca_norm(x[:, : where.shape[1]])
            queries = split_heads(cross.q_proj(x), cross.head_dim)[:, 0]
            keys = cross.project(encoded, None)[0][:, 0]
            scores = (queries @ keys.transpose(1, 2)).float().masked_fill(~mask[:, 0], -torch.inf)
            shares.append((scores.softmax(-1) * weight).sum(-1))
        return torch.stack(shares)

    def forward(self, batch: Batch, guide_weight: Tensor | float) -> Losses:
        config = self.network.config
        ids, device = batch.ids, batch.ids.device
        mask = (torch.arange(ids.shape[1], device=device) < batch.texts[:, None])[:, None, None]
        marks = config.delay_pattern, config.bos_token_id, config.pad_token_id
        rows, drawn = delayed(batch.codes, batch.frames, *marks)
        heard, _ = delayed(batch.heard, batch.frames, *marks)
        # all channels of a prompt's frames are given and have no loss
        lags = torch.stack([torch.full((), lag, device=device) for lag in config.delay_pattern])
        learned = torch.arange(rows.shape[1], device=device)[None, :, None] - 1 >= (
            batch.prompts[:, None, None] + lags
        )
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda", cache_enabled=False):
            encoded = self.encode(ids, mask)
            logits, read, written = self.logits(heard[:, :-1], encoded, mask)
            shares = self.guide(read, encoded, mask, batch.where)
            written = [F.rms_norm(x[:, : batch.said.shape[1]], x.shape[2:]) for x in written]
            heads = [self.spelling(encoded), *map(self.saying, written)]
        targets = rows[:, 1:].masked_fill(~(drawn & learned)[:, 1:], IGNORED)
        per_row = F.cross_entropy(
            logits.flatten(0, 2), targets.flatten(), ignore_index=IGNORED, reduction="none"
        ).view(targets.shape)
        counted = (targets != IGNORED).sum((0, 1)).clamp_min(1)
        channels = per_row.sum((0, 1)) / counted
        speech = torch.arange(shares.shape[2], device=device) < batch.frames[:, None]
        speech = (speech & batch.with_text[:, None]).float()
        speech = speech / speech.sum().clamp_min(1)
        guide = -(shares.clamp_min(1e-4).log().mean(0) * speech).sum()
        said = batch.said.masked_fill(~batch.with_text[:, None], IGNORED)
        phones = torch.stack(
            [
                F.cross_entropy(
                    head.float().flatten(0, 1), wanted.flatten(), ignore_index=IGNORED, reduction="sum"
                )
                / (wanted != IGNORED).sum().clamp_min(1)
                for head, wanted in zip(heads, [batch.sounds, *[said] * len(written)], strict=True)
            ]
        )
        total = (channels * self.get_buffer("weights")).sum() + guide_weight * guide
        total = total + PHONE_WEIGHT * phones.sum()
        share = (shares.mean(0) * speech).sum().detach()
        return Losses(total, channels.detach(), share, phones.detach())

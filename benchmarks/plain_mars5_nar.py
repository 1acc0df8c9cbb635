"""One step of MARS5's diffusion in PyTorch without shortcuts, written from a description of upstream.

The network is called for each branch of guidance, and computes speaker vector, timestep features and text
rows in each call and logits of every cell. One-hot rows are integers, their logarithms and sums are arrays,
and a number is drawn for every class of every cell, known or not. Dtypes are torch_ref's: products in the
weights' dtype; norms, softmax and values between layers in float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tts_core.mars5.config import ResidualTransformerConfig


@dataclass
class Inputs:
    """Inputs of a step.

    text (1, N), reference (1, P, Q), clean (1, S, Q): int64.  known: (1, S, Q) bool.  The four tables: (T,).
    """

    text: Tensor
    reference: Tensor
    clean: Tensor
    known: Tensor
    log_alpha: Tensor
    log_1_min_alpha: Tensor
    log_cumprod_alpha: Tensor
    log_1_min_cumprod_alpha: Tensor


class PlainStep:
    """The step. weights: tensors by their published names."""

    def __init__(self, config: ResidualTransformerConfig, weights: dict[str, Tensor], inputs: Inputs):
        self.config, self.weights, self.given = config, weights, inputs

    def __call__(
        self, x: Tensor, t: int, u_unknown: Tensor, u_known: Tensor, *, w: float, temp: float, pinned: int
    ) -> Tensor:
        """Draw the next codes. x: (1, S, Q) int64.  u_*: (1, S, Q, K) uniform. → (1, S, Q)."""
        logits = self.network(x, t, drop=False)
        if w != 1:
            logits = w * logits + (1 - w) * self.network(x, t, drop=True)
        log_x0 = F.log_softmax(logits / temp, dim=-1)
        unknown = self.sample(self.posterior(log_x0, x, t), u_unknown)
        clean, known = self.given.clean, self.given.known
        after = clean if t == 0 else self.sample(self.q_pred(self.log_one_hot(clean), t), u_known)
        x = torch.where(known, after, unknown)
        if t > pinned:
            x[..., 0] = clean[..., 0]
        return x

    def log_one_hot(self, x: Tensor) -> Tensor:
        return torch.log(F.one_hot(x, self.config.n_classes).float().clamp(min=1e-7))

    def q_pred(self, log_p: Tensor, t: int) -> Tensor:
        rest = self.given.log_1_min_cumprod_alpha[t] - math.log(self.config.n_classes)
        return torch.logaddexp(log_p + self.given.log_cumprod_alpha[t], rest)

    def q_one(self, log_p: Tensor, t: int) -> Tensor:
        rest = self.given.log_1_min_alpha[t] - math.log(self.config.n_classes)
        return torch.logaddexp(log_p + self.given.log_alpha[t], rest)

    def posterior(self, log_x0: Tensor, x: Tensor, t: int) -> Tensor:
        below = log_x0 if t == 0 else self.q_pred(log_x0, t - 1)
        log_p = below + self.q_one(self.log_one_hot(x), t)
        return log_p - log_p.logsumexp(dim=-1, keepdim=True)

    def sample(self, log_p: Tensor, uniform: Tensor) -> Tensor:
        gumbel = -torch.log((-torch.log(uniform.clamp(min=1e-7))).clamp(min=1e-7))
        return (gumbel + log_p).argmax(dim=-1)

    def network(self, x: Tensor, t: int, *, drop: bool) -> Tensor:
        """Compute logits. (1, S, Q) → (1, S, Q, K) float32."""
        config, text = self.config, self.given.text
        c = torch.cat(
            (self.speaker(drop=drop)[:, None], self.weights["text_embed.weight"][text].float()), dim=1
        )
        c = c + self.weights["cond_pos_embedding.alpha"] * self.positions(c.shape[1])
        h = self.embedded("residual_encoder", x)
        h = h + self.weights["pos_embedding.alpha"] * self.positions(h.shape[1])
        memory = self.encoder(
            "tfm.encoder", c + self.timestep("timestep_encoder_emb", t), config.encoder_layers
        )
        h = h + self.timestep("timestep_decoder_emb", t)
        for i in range(config.decoder_layers):
            h = self.decoder_layer(f"tfm.decoder.layers.{i}", h, memory)
        h = self.norm("tfm.decoder.norm", h)
        logits = []
        for q in range(config.n_output_codebooks):
            at = f"residual_decoder.{q}"
            logits.append(self.linear(f"{at}.1", self.norm(f"{at}.0", h, config.head_norm_eps)).float())
        return torch.stack(logits, dim=-1).permute(0, 1, 3, 2)

    def speaker(self, *, drop: bool) -> Tensor:
        codes = self.given.reference
        frames = torch.arange(codes.shape[1] + 1, device=codes.device)
        if drop:
            codes = torch.full_like(codes, self.config.codebook_rows - 1)
        visible = (frames < (1 if drop else len(frames)))[None, None, None]
        rows = torch.cat(
            (self.weights["spk_identity_emb.weight"][None].float(), self.embedded("ref_embedder", codes)),
            dim=1,
        )
        rows = rows + self.weights["ref_pos_embedding.alpha"] * self.positions(rows.shape[1])
        heads = self.config.speaker_heads
        return self.encoder("spk_encoder", rows, self.config.speaker_layers, heads, visible)[:, 0]

    def embedded(self, at: str, codes: Tensor) -> Tensor:
        tables = [self.weights[f"{at}.embs.{q}.weight"] for q in range(self.config.n_codebooks)]
        return torch.cat([table[codes[..., q]] for q, table in enumerate(tables)], dim=-1).float()

    def positions(self, length: int) -> Tensor:
        width, device = self.config.hidden_size, self.given.text.device
        frequencies = torch.exp(torch.arange(0, width, 2, device=device) * (-math.log(10000.0) / width))
        angles = torch.arange(length, device=device)[:, None] * frequencies
        return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)

    def timestep(self, at: str, t: int) -> Tensor:
        half = self.config.timestep_size // 2
        frequencies = torch.exp(-math.log(10000.0) * torch.arange(half, device=self.given.text.device) / half)
        features = torch.cat(((t * frequencies).cos(), (t * frequencies).sin()))
        return self.linear(f"{at}.2", F.silu(self.linear(f"{at}.0", features))).float()

    def encoder(
        self, at: str, x: Tensor, layers: int, heads: int | None = None, visible: Tensor | None = None
    ) -> Tensor:
        for i in range(layers):
            layer = f"{at}.layers.{i}"
            own = self.norm(f"{layer}.norm1", x)
            x = x + self.attention(f"{layer}.self_attn", own, own, heads, visible)
            x = x + self.feed_forward(layer, self.norm(f"{layer}.norm2", x))
        return self.norm(f"{at}.norm", x)

    def decoder_layer(self, at: str, x: Tensor, memory: Tensor) -> Tensor:
        own = self.norm(f"{at}.norm1", x)
        x = x + self.attention(f"{at}.self_attn", own, own)
        x = x + self.attention(f"{at}.multihead_attn", self.norm(f"{at}.norm2", x), memory)
        return x + self.feed_forward(at, self.norm(f"{at}.norm3", x))

    def attention(
        self, at: str, x: Tensor, source: Tensor, heads: int | None = None, visible: Tensor | None = None
    ) -> Tensor:
        heads = heads or self.config.num_attention_heads
        weight, bias = self.weights[f"{at}.in_proj.weight"], self.weights[f"{at}.in_proj.bias"]
        parts = zip((x, source, source), weight.chunk(3), bias.chunk(3), strict=True)
        q, k, v = (
            F.linear(given.to(w.dtype), w, b).unflatten(-1, (heads, -1)).transpose(1, 2)
            for given, w, b in parts
        )
        return self.linear(
            f"{at}.out_proj", F.scaled_dot_product_attention(q, k, v, visible).transpose(1, 2).flatten(2)
        )

    def feed_forward(self, at: str, x: Tensor) -> Tensor:
        gate, linear = (self.weights[f"{at}.activation.{name}.weight"] for name in "WV")
        x = x.to(gate.dtype)
        return self.linear(f"{at}.linear2", F.silu(F.linear(x, gate)) * F.linear(x, linear))

    def norm(self, at: str, x: Tensor, eps: float | None = None) -> Tensor:
        weight, bias = self.weights[f"{at}.weight"], self.weights[f"{at}.bias"]
        return F.layer_norm(x, weight.shape, weight, bias, eps or self.config.norm_eps)

    def linear(self, at: str, x: Tensor) -> Tensor:
        weight = self.weights[f"{at}.weight"]
        return F.linear(x.to(weight.dtype), weight, self.weights[f"{at}.bias"])

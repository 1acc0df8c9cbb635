"""MARS5's autoregressive generation without shortcuts, in PyTorch and MLX: the baseline of mars5_ar_step.py.

It is written from the algorithm's description. Each step computes the speaker vector again, concatenates its
keys and values to copies of all earlier ones, counts the last ids on the host and picks an id there;
`Shortcuts` turns these off one by one. Typical filtering, off by default, is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tts_core.mars5.config import CodecLMConfig
from tts_core.mars5.options import Mars5Options
from tts_core.mars5.sampling import end_penalties
from tts_core.mars5.sequence import CodecSequence
from tts_core.nn.noise import Noise


@dataclass(frozen=True)
class Shortcuts:
    """Shortcuts of the port to use."""

    speaker_once: bool = False
    fixed_cache: bool = False  # write keys and values into buffers instead of concatenating copies
    sampling_on_device: bool = False  # count, filter and draw there; read one id


class Plain:
    """The algorithm in terms of a framework's primitives."""

    def __init__(self, ops: TorchOps | MlxOps, rules: Any, shortcuts: Shortcuts):
        """rules: the side's mars5.sampling, for sampling_on_device."""
        self.ops: Any = ops
        self.config, self.tensors, self.rules, self.shortcuts = ops.config, ops.tensors, rules, shortcuts

    def generate(
        self, codes: np.ndarray, sequence: CodecSequence, options: Mars5Options, noise: Noise
    ) -> list[int]:
        """Generate the ids after the prompt. codes: (Q, P)."""
        capacity = min(self.config.sliding_window, sequence.max_len)
        cache: list[Any] = [None] * self.config.num_hidden_layers
        penalties = end_penalties(options, sequence.prompt.expected_tokens, sequence.room)
        reference, position = self.ops.ids(codes.T[None]), 0
        self.tables(codes.shape[1] + 1, sequence.max_len)
        speaker = None
        while not sequence.done:
            if speaker is None or not self.shortcuts.speaker_once:
                speaker = self.speaker(reference)
            rows = self.ops.cat([speaker, self.ops.take("embed.weight", self.ops.ids(sequence.ids[None]))], 1)
            rows = rows[:, position:]
            logits = self.logits(rows, position, cache, capacity)
            count = len(sequence.generated)
            number = float(noise.uniform(count, (1,))[0])
            sequence.accept(self.pick(logits, sequence, options, float(penalties[count]), number))
            position += rows.shape[1]
        return sequence.generated

    def tables(self, frames: int, positions: int) -> None:
        """Compute sines of the reference's positions, and rotations, once."""
        config, width = self.config, self.config.hidden_size
        angles = np.arange(frames)[:, None] * np.exp(-math.log(10000) * np.arange(0, width, 2) / width)
        sines = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(frames, width)
        self.sines = self.ops.floats(sines.astype(np.float32))
        half = np.arange(0, config.head_dim, 2) / config.head_dim
        angles = np.arange(positions)[:, None] / config.rope_theta**half
        self.turns = [self.ops.floats(part.astype(np.float32)) for part in (np.cos(angles), np.sin(angles))]

    def speaker(self, codes: Any) -> Any:
        """Compute the speaker vector. (1, P, Q) → (1, 1, D)."""
        config, width = self.config, self.config.hidden_size
        tables = [f"ref_chunked_emb.embs.{q}.weight" for q in range(config.n_codebooks)]
        frames = self.ops.cat([self.ops.take(table, codes[..., q]) for q, table in enumerate(tables)], 2)
        x = self.ops.cat([self.tensors["spk_identity_emb.weight"][None], frames], 1)
        alpha = self.ops.wide(self.tensors["pos_embedding.alpha"])
        x = self.ops.same(self.ops.wide(x) + alpha * self.sines, x)
        heads, eps = config.speaker_heads, config.speaker_norm_eps
        for i in range(config.speaker_layers):
            at = f"spk_encoder.layers.{i}"
            y = self.ops.layer_norm(x, f"{at}.norm1", eps)
            packed = self.ops.linear(y, f"{at}.self_attn.in_proj.weight", f"{at}.self_attn.in_proj.bias")
            q, k, v = (
                self.ops.split(packed[..., part * width : (part + 1) * width], heads) for part in range(3)
            )
            y = self.ops.merge(self.ops.attend(q, k, v, causal=False))
            x = x + self.ops.linear(y, f"{at}.self_attn.out_proj.weight", f"{at}.self_attn.out_proj.bias")
            y = self.ops.layer_norm(x, f"{at}.norm2", eps)
            y = self.ops.silu(self.ops.linear(y, f"{at}.activation.W.weight")) * self.ops.linear(
                y, f"{at}.activation.V.weight"
            )
            x = x + self.ops.linear(y, f"{at}.linear2.weight", f"{at}.linear2.bias")
        return self.ops.layer_norm(x, "spk_encoder.norm", eps)[:, :1]

    def logits(self, x: Any, position: int, cache: list[Any], capacity: int) -> Any:
        """Compute the logits after the last row. (1, T, D) → (V,) float32."""
        config, count = self.config, x.shape[1]
        cos, sin = (table[position : position + count] for table in self.turns)
        for i in range(config.num_hidden_layers):
            at = f"ar.layers.{i}"
            y = self.ops.rms_norm(x, f"{at}.attention_norm.weight")
            q, k, v = (
                self.ops.split(
                    self.ops.linear(y, f"{at}.attention.w{part}.weight"), config.num_attention_heads
                )
                for part in "qkv"
            )
            q, k = (self.rotated(part, cos, sin) for part in (q, k))
            if self.shortcuts.fixed_cache:
                k, v = self.ops.written(cache, i, k, v, position, capacity)
            else:
                joined = [(k, v)] if cache[i] is None else [cache[i], (k, v)]
                k, v = cache[i] = tuple(
                    self.ops.cat([pair[w] for pair in joined], 2)[:, :, -capacity:] for w in (0, 1)
                )
            y = self.ops.attend(q, k, v, causal=count > 1)
            x = x + self.ops.linear(self.ops.merge(y), f"{at}.attention.wo.weight")
            y = self.ops.rms_norm(x, f"{at}.ffn_norm.weight")
            gate = self.ops.silu(self.ops.linear(y, f"{at}.feed_forward.w1.weight"))
            y = gate * self.ops.linear(y, f"{at}.feed_forward.w3.weight")
            x = x + self.ops.linear(y, f"{at}.feed_forward.w2.weight")
        return self.ops.wide(
            self.ops.linear(self.ops.rms_norm(x, "ar.norm.weight")[:, -1], "ar.output.weight")
        )[0]

    def rotated(self, x: Any, cos: Any, sin: Any) -> Any:
        pairs = self.ops.wide(x).reshape(*x.shape[:-1], -1, 2)
        a, b = pairs[..., 0], pairs[..., 1]
        return self.ops.same(self.ops.pairs(a * cos - b * sin, a * sin + b * cos).reshape(x.shape), x)

    def pick(
        self, logits: Any, sequence: CodecSequence, options: Mars5Options, penalty: float, number: float
    ) -> int:
        vocabulary, recent = sequence.vocabulary, sequence.generated[-options.rep_penalty_window :]
        if self.shortcuts.sampling_on_device:
            seen = self.ops.ids(np.array([recent if len(recent) > 1 else []], dtype=np.int64))
            counts = self.rules.occurrences(seen, logits.shape[-1])
            lost, uniform = (self.ops.floats(np.array(x, np.float32)) for x in (penalty, number))
            scores = self.rules.log_probabilities(
                logits[None], counts, lost, options, lowest=vocabulary.lowest, end=vocabulary.end
            )
            return int(self.ops.host(self.rules.draw(scores, uniform))[0])
        scores = self.ops.host(logits).copy()
        if len(sequence.generated) > 1:
            places, counts = np.unique(recent, return_counts=True)
            scores[places] -= (counts * options.freq_penalty + options.presence_penalty).astype(np.float32)
        scores[: vocabulary.lowest] = -np.inf
        scores[vocabulary.end] -= penalty
        scores /= np.float32(options.temperature)
        if options.top_k:
            scores[scores < np.partition(scores, -options.top_k)[-options.top_k]] = -np.inf
        order = np.argsort(-scores, kind="stable")
        probs = softmax(scores)[order]
        keep = np.concatenate([[0.0], np.cumsum(probs)[:-1]]) <= options.top_p
        scores[scores < scores[order[keep]].min()] = -np.inf
        sums = np.cumsum(softmax(scores))
        return int(np.argmax(sums / sums[-1] > number))


def softmax(logits: np.ndarray) -> np.ndarray:
    shifted = np.exp(logits - logits.max())
    return shifted / shifted.sum()


class TorchOps:
    """Primitives in PyTorch."""

    def __init__(self, config: CodecLMConfig, tensors: Mapping[str, Any]):
        """tensors: under the published names."""
        import torch
        import torch.nn.functional as F

        self.config, self.tensors = config, tensors
        self.torch, self.F = torch, F
        self.device = tensors["embed.weight"].device
        self.silu = F.silu

    def ids(self, array: np.ndarray) -> Any:
        return self.torch.from_numpy(array).to(self.device)

    def floats(self, array: np.ndarray) -> Any:
        return self.torch.from_numpy(array).to(self.device)

    def host(self, x: Any) -> np.ndarray:
        return x.cpu().numpy()

    def wide(self, x: Any) -> Any:
        return x.float()

    def same(self, x: Any, like: Any) -> Any:
        return x.to(like.dtype)

    def take(self, table: str, ids: Any) -> Any:
        return self.F.embedding(ids.long(), self.tensors[table])

    def cat(self, parts: list[Any], axis: int) -> Any:
        return self.torch.cat(parts, dim=axis)

    def pairs(self, a: Any, b: Any) -> Any:
        return self.torch.stack([a, b], dim=-1)

    def linear(self, x: Any, weight: str, bias: str | None = None) -> Any:
        return self.F.linear(x, self.tensors[weight], None if bias is None else self.tensors[bias])

    def rms_norm(self, x: Any, name: str) -> Any:
        weight = self.tensors[name]
        return self.F.rms_norm(x.float(), weight.shape, weight, self.config.norm_eps).to(x.dtype)

    def layer_norm(self, x: Any, at: str, eps: float) -> Any:
        weight, bias = self.tensors[f"{at}.weight"], self.tensors[f"{at}.bias"]
        return self.F.layer_norm(x.float(), weight.shape, weight, bias, eps).to(x.dtype)

    def split(self, x: Any, heads: int) -> Any:
        return x.unflatten(-1, (heads, -1)).transpose(1, 2)

    def merge(self, x: Any) -> Any:
        return x.transpose(1, 2).flatten(2)

    def attend(self, q: Any, k: Any, v: Any, *, causal: bool) -> Any:
        return self.F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def written(self, cache: list[Any], i: int, k: Any, v: Any, position: int, capacity: int) -> Any:
        if cache[i] is None:
            cache[i] = [x.new_zeros(*x.shape[:2], capacity, x.shape[3]) for x in (k, v)]
        stop = position + k.shape[2]
        for buffer, new in zip(cache[i], (k, v), strict=True):
            buffer[:, :, position:stop] = new
        return tuple(buffer[:, :, :stop] for buffer in cache[i])


class MlxOps:
    """Primitives in MLX."""

    def __init__(self, config: CodecLMConfig, tensors: Mapping[str, Any]):
        """tensors: under the published names."""
        import mlx.core as mx
        from mlx import nn

        self.config, self.tensors = config, tensors
        self.mx, self.silu = mx, nn.silu

    def ids(self, array: np.ndarray) -> Any:
        return self.mx.array(array.astype(np.int32))

    def floats(self, array: np.ndarray) -> Any:
        return self.mx.array(array)

    def host(self, x: Any) -> np.ndarray:
        return np.array(x)

    def wide(self, x: Any) -> Any:
        return x.astype(self.mx.float32)

    def same(self, x: Any, like: Any) -> Any:
        return x.astype(like.dtype)

    def take(self, table: str, ids: Any) -> Any:
        return self.tensors[table][ids]

    def cat(self, parts: list[Any], axis: int) -> Any:
        return self.mx.concatenate(parts, axis=axis)

    def pairs(self, a: Any, b: Any) -> Any:
        return self.mx.stack([a, b], axis=-1)

    def linear(self, x: Any, weight: str, bias: str | None = None) -> Any:
        out = x @ self.tensors[weight].T
        return out if bias is None else out + self.tensors[bias]

    def rms_norm(self, x: Any, name: str) -> Any:
        return self.mx.fast.rms_norm(x, self.tensors[name], self.config.norm_eps).astype(x.dtype)

    def layer_norm(self, x: Any, at: str, eps: float) -> Any:
        weight, bias = self.tensors[f"{at}.weight"], self.tensors[f"{at}.bias"]
        return self.mx.fast.layer_norm(x, weight, bias, eps).astype(x.dtype)

    def split(self, x: Any, heads: int) -> Any:
        return self.mx.unflatten(x, -1, (heads, -1)).transpose(0, 2, 1, 3)

    def merge(self, x: Any) -> Any:
        return x.transpose(0, 2, 1, 3).flatten(2)

    def attend(self, q: Any, k: Any, v: Any, *, causal: bool) -> Any:
        mask = "causal" if causal else None
        return self.mx.fast.scaled_dot_product_attention(q, k, v, scale=q.shape[-1] ** -0.5, mask=mask)

    def written(self, cache: list[Any], i: int, k: Any, v: Any, position: int, capacity: int) -> Any:
        if cache[i] is None:
            cache[i] = [self.mx.zeros((*x.shape[:2], capacity, x.shape[3]), dtype=x.dtype) for x in (k, v)]
        stop = position + k.shape[2]
        for buffer, new in zip(cache[i], (k, v), strict=True):
            buffer[:, :, position:stop] = new
        return tuple(buffer[:, :, :stop] for buffer in cache[i])

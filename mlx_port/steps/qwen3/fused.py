"""Qwen3-TTS's networks and draws for one frame of each text, with few launches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import mlx.core as mx
import numpy as np
from mlx import nn

from mlx_port.kernels.attention_support import try_long
from mlx_port.layers.row_cache import RowCache
from mlx_port.qwen3.blocks import TransformerLayer
from mlx_port.qwen3.qwen3 import Qwen3
from mlx_port.sampling import draw_rows
from mlx_port.steps.chain import chain
from mlx_port.steps.concatenated import concatenated
from mlx_port.steps.forms import built_once
from mlx_port.steps.fused_stack import FusedStack, StackLayer, attending, trial_cache
from mlx_port.steps.row_keys import attend_row
from mlx_port.steps.rows import independent
from mlx_port.steps.spin import Spins
from mlx_port.steps.splitting import Splitting
from tts_core.nn.sampling import Sampler
from tts_core.qwen3.config import SUPPRESSED, Qwen3StackConfig
from tts_core.qwen3.layout import allowed_ids

Frame = list[list[mx.array]]  # [keys, values] of each layer of the predictor, (R, K, Q, E)


class FusedQwen3:
    """The weights of talker and code predictor, applied to one frame of each text."""

    def __init__(self, network: Qwen3):
        self.network, config = network, network.config
        talker, predictor = network.talker, network.talker.code_predictor
        self.kind = talker.model.codec_embedding.weight.dtype
        self.table = concatenated((talker.model.codec_embedding, *predictor.model.codec_embedding))
        starts = config.vocab_size + config.codebook_size * np.arange(predictor.stages)
        self.offsets = mx.array([0, *starts.tolist()])
        self.talker = FusedStack(
            _layers(talker.model.layers, config.talker, self.kind),
            talker.model.norm,
            self.kind,
            is_apart=True,
        )
        self.predictor = FusedStack(
            _layers(predictor.model.layers, config.predictor, self.kind),
            predictor.model.norm,
            self.kind,
            is_apart=False,
        )
        self.scales = config.talker.head_dim**-0.5, config.predictor.head_dim**-0.5  # of attention
        self.head = independent(talker.codec_head)
        self.heads = [independent(item) for item in predictor.lm_head]
        self.projection = independent(predictor.small_to_mtp_projection)
        text = talker.text_projection
        self.text = talker.model.text_embedding, independent(text.linear_fc1), independent(text.linear_fc2)
        self.spins = Spins(talker.rotary(0, config.max_positions))
        table = Spins(predictor.rotary(0, config.n_codebooks)).table
        self.rotations = [*mx.split(table, len(table))]  # (1, 2, E/2) each, as from Spins
        self.drawings: dict[tuple[Sampler, Sampler], FrameDraws] = {}
        self.start, self.embed = chain(self.talker.start), chain(self._embed)
        mx.eval(self.offsets, self.rotations)

    def hidden(self, x: mx.array, positions: np.ndarray, cache: Sequence[RowCache]) -> mx.array:
        """Run the talker. x: (R, D).  positions: (R,), where the caches are. → (R, D), normed."""
        spin = self.spins(positions)
        return self.talker.run(self.start(x, spin), spin, attending(cache, self.scales[0]))

    def logits(self, hidden: mx.array) -> mx.array:
        """Compute the logits of first codes. (R, D) → (R, V) float32."""
        return self.head(hidden).astype(mx.float32)

    def new_frame(self, rows: int) -> Frame:
        """Create an empty cache of the predictor."""
        config = self.network.config
        stack = config.predictor
        shape = rows, stack.num_key_value_heads, config.n_codebooks, stack.head_dim
        return [[mx.zeros(shape, self.kind), mx.zeros(shape, self.kind)] for _ in self.predictor.layers]

    def read(self, x: mx.array, position: int, frame: Frame) -> mx.array:
        """Let the predictor read a row of each text, (R, D) of the talker's width. → (R, E), normed."""

        def attend(layer: int, queries: mx.array, *fresh: mx.array) -> mx.array:
            for held, new in zip(frame[layer], fresh, strict=True):
                held[:, :, position : position + 1] = new
            keys, values = (held[:, :, : position + 1] for held in frame[layer])
            return attend_row(queries, keys, values, None, self.scales[1])

        spin = self.rotations[position]
        return self.predictor.run(self.predictor.start(self.projection(x), spin), spin, attend)

    def stage(self, stage: int, hidden: mx.array) -> mx.array:
        """Compute the logits of a stage's code. (R, E) → (R, V'), in the head's dtype."""
        return self.heads[stage](hidden)

    def draws(self, first: Sampler, others: Sampler) -> FrameDraws:
        """Return the draws of a frame by these samplers; they are compiled once for each pair."""
        if (first, others) not in self.drawings:
            self.drawings[first, others] = FrameDraws(self, first, others)
        return self.drawings[first, others]

    def try_kernels(self) -> None:
        """Run the trials of all kernels that texts use: build a frame's graph, but do not run it."""
        stack = self.network.config.talker
        cache = trial_cache(len(self.talker.layers), stack.num_key_value_heads, stack.head_dim, self.kind)
        hidden = self.hidden(mx.zeros((1, stack.hidden_size), self.kind), np.zeros(1, np.int32), cache)
        self.read(hidden, 0, self.new_frame(1))
        try_long(stack.num_attention_heads, stack.num_key_value_heads, stack.head_dim, self.kind)

    def _embed(self, frames: mx.array, ids: mx.array) -> mx.array:
        """Sum the embeddings of frames, (R, Q), and of the id of the text that goes with each. → (R, D)."""
        embedding, first, second = self.text
        embedded = self.table(mx.maximum(frames, 0) + self.offsets)  # (R, Q, D)
        x = embedded[:, 0]
        for book in range(1, embedded.shape[1]):
            x = x + embedded[:, book]
        return x + second(nn.silu(first(embedding(ids))))


class FrameDraws:
    """The draws of a frame's codes, all in one graph."""

    def __init__(self, fused: FusedQwen3, first: Sampler, others: Sampler):
        self.fused, self.first, self.others, config = fused, first, others, fused.network.config
        self.end = config.codec_eos_id
        self.allowed = mx.array(allowed_ids(config.vocab_size, SUPPRESSED, self.end))
        self.draw = chain(self._draw)
        mx.eval(self.allowed)

    def _draw(
        self,
        hidden: mx.array,
        seen: mx.array,
        steps: mx.array,
        settings: tuple[mx.array, mx.array],
        uniform: mx.array,
    ) -> tuple[mx.array, mx.array]:
        """Draw a frame of each text.

        hidden: (R, D).
        seen: (R, V), first codes that were drawn.
        steps: (R, 1), frames that were drawn.
        settings: tables of both samplers.
        uniform: (R, V + (Q - 1) V').
        → (R, Q) codes, the first of them -1 where logits were not all finite, and (R,), that one without it.
        """
        fused, config = self.fused, self.fused.network.config
        predictor = fused.network.talker.code_predictor
        size, frame, logits = config.codebook_size, fused.new_frame(len(hidden)), fused.logits(hidden)
        own, table = self.first.named(settings[0], 2), self.others.named(settings[1], 2)
        inputs = {"allowed": self.allowed, "counts": seen, "step": steps, "end": self.end}
        first = draw_rows([logits], own, uniform[:, : config.vocab_size], self.first, **inputs)
        fused.read(hidden, 0, frame)
        codes, bad = list[mx.array](), mx.zeros((len(first), size), fused.kind)
        finite = mx.isfinite(logits).all(axis=-1)
        x = fused.network.talker.model.codec_embedding(first)
        for stage in range(predictor.stages):
            logits = fused.stage(stage, fused.read(x, stage + 1, frame))
            bad = bad + (logits - logits)  # NaN where logits are not finite
            start = config.vocab_size + stage * size
            wide, numbers = logits.astype(mx.float32), uniform[:, start : start + size]
            codes.append(draw_rows([wide], table, numbers, self.others))
            x = predictor.embed(stage, codes[-1])
        finite = finite & mx.isfinite(bad).all(axis=-1)
        return mx.stack([mx.where(finite, first, -1), *codes], axis=1), first


def fused(network: Qwen3) -> FusedQwen3:
    """Return the form of the networks for single frames; built again only for other weights."""
    return built_once(network, "steps", lambda: FusedQwen3(network))


def _layers(layers: Iterable[nn.Module], config: Qwen3StackConfig, kind: mx.Dtype) -> list[StackLayer]:
    """Join the parallel weights of layers."""
    return [_layer(layer, config, kind) for layer in cast(Iterable[TransformerLayer], layers)]


def _layer(layer: TransformerLayer, config: Qwen3StackConfig, kind: mx.Dtype) -> StackLayer:
    attention, mlp = layer.self_attn, layer.mlp
    gains = attention.q_norm.weight, attention.k_norm.weight
    gate_up, down = independent(concatenated((mlp.gate_proj, mlp.up_proj))), independent(mlp.down_proj)

    def feed(x: mx.array) -> mx.array:
        gate, up = mx.split(gate_up(x), 2, axis=-1)
        return down(nn.silu(gate) * up)

    return StackLayer(
        independent(concatenated((attention.q_proj, attention.k_proj, attention.v_proj))),
        Splitting(config, gains, config.rms_norm_eps, kind),
        independent(attention.o_proj),
        (layer.input_layernorm, layer.post_attention_layernorm),
        feed,
    )

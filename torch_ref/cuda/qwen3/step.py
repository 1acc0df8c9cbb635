"""Qwen3-TTS's step on kernels and joined weights: the frame before in, the next one out, all of it on the
device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ref.cuda import pointwise
from torch_ref.cuda.attention import MOST_SPLITS, workspace
from torch_ref.cuda.concatenated import concatenated
from torch_ref.cuda.fused_stack import FusedStack, StackLayer, StackMemory
from torch_ref.cuda.qwen3.draws import Qwen3Draws, draw, embed
from torch_ref.cuda.rows import usable
from torch_ref.layers.norm import RMSNorm
from torch_ref.layers.rope import RotaryPositions
from torch_ref.qwen3.blocks import TransformerLayer
from torch_ref.qwen3.qwen3 import Qwen3
from tts_core.nn.sampling import columns
from tts_core.qwen3.config import SUPPRESSED, Qwen3Config, Qwen3StackConfig
from tts_core.qwen3.layout import Qwen3Numbers, allowed_ids

MOST_POSITIONS = 2**31  # more than any table has


@dataclass(frozen=True, eq=False)
class Qwen3Captured:
    """All of B texts that is on the device.

    memory: the talker's keys and values.
    frame: the predictor's, of the present frame.
    x: (B, D), y: (B, E), rows on their way through both.
    """

    rows: Qwen3Draws
    memory: StackMemory
    frame: StackMemory
    x: Tensor
    y: Tensor

    @classmethod
    def empty(cls, network: Qwen3, inputs: Tensor, capacity: int) -> Qwen3Captured:
        """Allocate zeros. inputs: (3, B), of a batch.  capacity: positions of a text."""
        config, weight, texts = network.config, network.talker.codec_head.weight, inputs.shape[1]
        device, numbers = weight.device, config.numbers
        steps, positions, ids = inputs.unbind()
        rows = Qwen3Draws(
            ids=ids,
            positions=positions,
            steps=steps,
            codes=torch.zeros(texts, config.n_codebooks, dtype=torch.int32, device=device),
            seen=torch.zeros(texts, config.vocab_size, dtype=torch.int8, device=device),
            settings=torch.zeros(texts, 2, len(columns(Qwen3Numbers)._fields), device=device),
            noise=torch.full((texts, numbers), 0.5, device=device),
            last=weight.new_zeros(texts, config.talker.hidden_size),
        )
        return cls(
            rows,
            _zeros(config.talker, texts, capacity, weight, MOST_SPLITS),
            _zeros(config.predictor, texts, config.n_codebooks, weight, 1),
            torch.zeros_like(rows.last),
            weight.new_zeros(texts, config.predictor.hidden_size),
        )

    def first(self, texts: int, config: Qwen3Config) -> Qwen3Captured:
        """Return the part of the first texts, with workspaces of its own."""

        def part(memory: StackMemory, stack: Qwen3StackConfig, most: int) -> StackMemory:
            keys, values = ([row[:texts] for row in rows] for rows in (memory.keys, memory.values))
            return _memory(stack, keys, values, most)

        return Qwen3Captured(
            Qwen3Draws(*(row[:texts] for row in self.rows)),
            part(self.memory, config.talker, MOST_SPLITS),
            part(self.frame, config.predictor, 1),
            self.x[:texts],
            self.y[:texts],
        )


def runs(network: Qwen3) -> bool:
    """Return whether the kernels support this network: see torch_ref.cuda.rows.usable."""
    config, weight = network.config, network.talker.codec_head.weight
    return all(usable(weight, stack.head_dim) for stack in (config.talker, config.predictor))


class FusedQwen3:
    """Both networks' weights, applied to one step of each text."""

    @torch.inference_mode()
    def __init__(self, network: Qwen3):
        self.talker, self.config = network.talker, network.config
        talker, predictor, config = network.talker, network.talker.code_predictor, network.config
        others = cast(list[nn.Embedding], list(predictor.model.codec_embedding))
        self.table = concatenated((talker.model.codec_embedding, *others))
        sizes = [config.vocab_size, *[config.codebook_size] * predictor.stages]
        # the projection of every code, so that no stage needs one
        self.tables = [predictor.small_to_mtp_projection(part) for part in self.table.split(sizes)]
        self.heads = [cast(nn.Linear, head).weight for head in predictor.lm_head]
        self.norm, self.stage_norm = _gain(talker.model.norm), _gain(predictor.model.norm)
        self.trunk = _stack(talker.model.layers, config.talker, talker.rotary)
        self.stages = _stack(predictor.model.layers, config.predictor, predictor.rotary)
        self.positions = torch.arange(config.n_codebooks, device=self.table.device)
        allowed = allowed_ids(config.vocab_size, SUPPRESSED, config.codec_eos_id)
        self.allowed = torch.from_numpy(allowed).to(self.table.device, torch.int8)

    def run(self, state: Qwen3Captured) -> Tensor:
        """Read the frame before and draw the next one. → (B, Q)."""
        rows, frame, head = state.rows, state.frame, self.talker.codec_head.weight
        rows.noise.log_().neg_().log_()
        embed(rows, self.talker.embed_text(rows.ids), self.table, state.x, self.config)
        x, added = self.trunk.run(state.x, rows.positions, rows.positions, state.memory)
        hidden = pointwise.add_norm(x, added, self.norm, self.trunk.eps)
        logits = F.linear(hidden, head)
        y = self.talker.code_predictor.small_to_mtp_projection(hidden)
        self.stages.run(y, self.positions[:1], self.positions[:1], frame)
        draw(logits, rows, 0, self.config, (self.tables[0], state.y), self.allowed)
        for stage, weight in enumerate(self.heads, 1):
            at = self.positions[stage : stage + 1]
            y, added = self.stages.run(state.y, at, at, frame)
            logits = self.stages.norm_linear(y, added, self.stage_norm, weight)
            draw(logits, rows, stage, self.config, self._following(stage, state))
        return rows.codes

    def _following(self, stage: int, state: Qwen3Captured) -> tuple[Tensor, Tensor] | None:
        """Return what the draw of a stage but the last writes the next input from, and where."""
        return (self.tables[stage], state.y) if stage < len(self.heads) else None

    def compiling(self, state: Qwen3Captured) -> list[Callable[[], object]]:
        """List calls that launch most kernels once, on arbitrary rows."""
        rows, config, x = state.rows, self.config, state.x
        first, other = (x.new_zeros(len(x), size) for size in (config.vocab_size, config.codebook_size))
        return [
            *self.trunk.compiling(x, rows.positions, state.memory),
            *self.stages.compiling(state.y, self.positions[:1], state.frame),
            lambda: embed(rows, x, self.table, x, config),
            lambda: pointwise.add_norm(x, None, self.norm, self.trunk.eps),
            lambda: draw(first, rows, 0, config, self._following(0, state), self.allowed),
            lambda: draw(other, rows, 1, config, self._following(1, state)),
            lambda: draw(other, rows, 1, config, None),
        ]


def _gain(norm: RMSNorm) -> Tensor:
    return norm.weight.detach().float()


def _stack(layers: Iterable[nn.Module], config: Qwen3StackConfig, rotary: RotaryPositions) -> FusedStack:
    fused = [_layer(layer) for layer in cast(Iterable[TransformerLayer], layers)]
    return FusedStack(fused, config.rms_norm_eps, config.head_dim**-0.5, rotary(0, MOST_POSITIONS))


def _layer(layer: TransformerLayer) -> StackLayer:
    """Join the weights of a layer."""
    attention, mlp = layer.self_attn, layer.mlp
    return StackLayer(
        _gain(layer.input_layernorm),
        _gain(layer.post_attention_layernorm),
        torch.stack((_gain(attention.q_norm), _gain(attention.k_norm))),
        concatenated((attention.q_proj, attention.k_proj, attention.v_proj)),
        attention.o_proj.weight,
        concatenated((mlp.gate_proj, mlp.up_proj)),
        mlp.down_proj.weight,
    )


def _zeros(stack: Qwen3StackConfig, texts: int, capacity: int, like: Tensor, most: int) -> StackMemory:
    shape = texts, stack.num_key_value_heads, capacity, stack.head_dim
    keys, values = ([like.new_zeros(shape) for _ in range(stack.num_hidden_layers)] for _ in range(2))
    return _memory(stack, keys, values, most)


def _memory(stack: Qwen3StackConfig, keys: list[Tensor], values: list[Tensor], most: int) -> StackMemory:
    """Add a workspace. most: programs that may share the keys of a row."""
    texts, kv_heads, _, width = keys[0].shape
    work = workspace(texts, stack.num_attention_heads, kv_heads, width, keys[0].device, most=most)
    return StackMemory(keys, values, work)

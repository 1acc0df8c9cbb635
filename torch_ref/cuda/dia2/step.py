"""Dia2's step on kernels and joined weights: inputs in, actions and codes out, all of it on the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ref.cuda import pointwise
from torch_ref.cuda.attention import MOST_SPLITS, workspace
from torch_ref.cuda.concatenated import concatenated
from torch_ref.cuda.dia2.draws import Dia2Draws, Dia2Given, Follows, draw_action, draw_code, embed
from torch_ref.cuda.dia2.fused_stack import depformer_layer, gain, transformer_layer
from torch_ref.cuda.fused_stack import FusedStack, StackMemory
from torch_ref.dia2.blocks import SCALE
from torch_ref.dia2.depformer import DepformerLayer
from torch_ref.dia2.dia2 import Dia2
from torch_ref.dia2.transformer import TransformerLayer
from tts_core.dia2.config import Dia2StackConfig
from tts_core.dia2.inputs import Dia2Numbers, allowed_ids, noise_shape
from tts_core.nn.sampling import columns

MOST_POSITIONS = 2**31  # more than any table has


@dataclass(frozen=True, eq=False)
class Dia2Buffers:
    """All of B texts that is on the device; R is B, or 2 B with an unconditional row after each other one.

    memory: keys and values of all steps.
    frame: those of the present step's codes.
    x: (R, D), y: (R, E), rows on their way through the transformer and the depformer.
    slots, positions: (R,) int64, of the present step in the memory, and of its angles.
    own: (B, 2) int32, rows of each text; None if each has one.
    """

    rows: Dia2Draws
    memory: StackMemory
    frame: StackMemory
    x: Tensor
    y: Tensor
    slots: Tensor
    positions: Tensor
    own: Tensor | None

    @classmethod
    def empty(cls, network: Dia2, texts: int, rows: int, *, guided: bool) -> Dia2Buffers:
        """Allocate zeros for texts of `rows` steps at most."""
        config, weight, copies = network.config, network.transformer.cb0_head.weight, (1 + guided) * texts
        device, streams = weight.device, config.n_streams
        return cls(
            Dia2Draws(
                torch.zeros(Dia2Given.shape(streams, texts), dtype=torch.int64, device=device),
                torch.zeros(texts, streams, dtype=torch.int32, device=device),
                torch.zeros(texts, dtype=torch.int32, device=device),
                torch.zeros(texts, 2, len(columns(Dia2Numbers)._fields), device=device),
                torch.full((texts, *noise_shape(config)), 0.5, device=device),
            ),
            _memory(config.transformer, copies, rows, weight, MOST_SPLITS),
            _memory(config.depformer, copies, streams - 1, weight, 1),
            weight.new_zeros(copies, config.transformer.hidden_size),
            weight.new_zeros(copies, config.depformer.hidden_size),
            torch.zeros(copies, dtype=torch.int64, device=device),
            torch.zeros(copies, dtype=torch.int64, device=device),
            torch.arange(copies, dtype=torch.int32, device=device).view(texts, 2) if guided else None,
        )

    def first(self, texts: int) -> Dia2Buffers:
        """Return the part of the first texts, with workspaces of its own."""
        rows = texts * len(self.x) // len(self.rows.codes)

        def part(memory: StackMemory, most: int) -> StackMemory:
            keys, values = ([item[:rows] for item in held] for held in (memory.keys, memory.values))
            _, kv_heads, _, width = keys[0].shape
            heads = len(memory.work.parts) // len(self.x)
            return StackMemory(
                keys, values, workspace(rows, heads, kv_heads, width, self.x.device, most=most)
            )

        return Dia2Buffers(
            Dia2Draws(self.rows.inputs[:, :texts], *(row[:texts] for row in self.rows[1:])),
            part(self.memory, MOST_SPLITS),
            part(self.frame, 1),
            self.x[:rows],
            self.y[:rows],
            self.slots[:rows],
            self.positions[:rows],
            None if self.own is None else self.own[:texts],
        )


class FusedDia2:
    """Both networks' weights, applied to one step of each text."""

    @torch.inference_mode()
    def __init__(self, network: Dia2):
        self.network, config = network, network.config
        transformer, depformer = network.transformer, network.depformer
        # one product gives the first code's logits and the inputs of all stages
        self.heads = concatenated((transformer.cb0_head, *_linears(depformer.depformer_in)))
        self.action_head = transformer.action_head.weight  # float32 in any network
        self.table = concatenated(cast(list[nn.Embedding], list(transformer.audio_embeds)))
        dtype, device, eps = self.heads.dtype, self.heads.device, config.norm_eps
        self.norm, self.stage_norm = gain(transformer.norm, dtype), gain(depformer.norm, dtype)
        self.logits = [layer.weight[: config.codebook_size] for layer in _linears(depformer.logits)]
        layers = cast(list[TransformerLayer], list(transformer.layers))
        angles = transformer.rotary(0, MOST_POSITIONS)
        self.trunk = FusedStack([transformer_layer(layer) for layer in layers], eps, SCALE, angles)
        stages = cast(list[DepformerLayer], list(depformer.layers))
        angles = None if depformer.rotary is None else depformer.rotary(0, MOST_POSITIONS)
        self.sets = [
            FusedStack([depformer_layer(stage, weight_set) for stage in stages], eps, SCALE, angles)
            for weight_set in range(len(config.weight_sets))
        ]
        self.stages = torch.arange(config.n_streams - 1, device=device)
        zero, pad = (
            torch.tensor([item], device=device) for item in (config.text_zero_id, config.text_pad_id)
        )
        self.empty = transformer.text_embed(zero, pad)[0]  # the unconditional rows' text
        allowed = allowed_ids(config.audio_vocab_size, (config.audio_pad_id, config.audio_bos_id))
        self.allowed = torch.from_numpy(allowed).to(device, torch.int8)

    def read(self, state: Dia2Buffers) -> Tensor:
        """Read the inputs and draw the actions. → (R, V + sets·E), for `codes`."""
        given = Dia2Given.of(state.rows.inputs)
        text = self.network.transformer.text_embed(given.text, given.second_text)
        embed(state.rows, text, self.empty, self.table, state.x, state.slots, state.positions)
        x, added = self.trunk.run(state.x, state.slots, state.positions, state.memory)
        hidden = pointwise.add_norm(x, added, self.norm, self.trunk.eps)
        draw_action(F.linear(hidden.to(self.action_head.dtype), self.action_head), state.rows, state.own)
        return F.linear(hidden, self.heads)

    def codes(self, state: Dia2Buffers, projected: Tensor) -> Tensor:
        """Draw the codes, one after the other. projected: of `read`. → (B, Q)."""
        config = self.network.config
        logits = projected[:, : config.audio_vocab_size]
        draw_code(logits, state.rows, 0, state.own, self._follows(0, state, projected), self.allowed)
        for stage, weight_set in enumerate(config.stage_sets):
            layers, at = self.sets[weight_set], self.stages[stage : stage + 1]
            y, added = layers.run(state.y, at, at, state.frame)
            logits = layers.norm_linear(y, added, self.stage_norm, self.logits[stage])
            draw_code(logits, state.rows, stage + 1, state.own, self._follows(stage + 1, state, projected))
        return state.rows.codes

    def _follows(self, stage: int, state: Dia2Buffers, projected: Tensor) -> Follows | None:
        """Return the input of a stage, which the draw before it writes; None after the last."""
        config, width = self.network.config, state.y.shape[1]
        if stage == len(config.stage_sets):
            return None
        start = config.audio_vocab_size + width * config.stage_sets[stage]
        table = self.network.depformer.audio_embeds[stage].weight
        assert isinstance(table, Tensor)
        return Follows(projected[:, start : start + width], table, state.y)

    def compiling(self, state: Dia2Buffers) -> list[Callable[[], object]]:
        """List calls that launch most kernels once, on arbitrary rows."""
        rows, config = state.rows, self.network.config
        text, projected = state.x[: len(rows.codes)], state.x.new_zeros(len(state.x), len(self.heads))
        actions = torch.zeros(len(state.x), config.action_vocab_size, device=state.x.device)
        codes = projected[:, : config.codebook_size]
        return [
            *self.trunk.compiling(state.x, state.slots, state.memory),
            *self.sets[0].compiling(state.y, self.stages[:1], state.frame),
            lambda: embed(rows, text, self.empty, self.table, state.x, state.slots, state.positions),
            lambda: draw_action(actions, rows, state.own),
            lambda: pointwise.add_norm(state.x, None, self.norm, self.trunk.eps),
            lambda: draw_code(
                projected[:, : config.audio_vocab_size],
                rows,
                0,
                state.own,
                self._follows(0, state, projected),
                self.allowed,
            ),
            lambda: draw_code(codes, rows, 1, state.own, self._follows(0, state, projected)),
            lambda: draw_code(codes, rows, 1, state.own),
        ]


def _linears(layers: nn.ModuleList) -> list[nn.Linear]:
    return cast(list[nn.Linear], list(layers))


def _memory(stack: Dia2StackConfig, rows: int, capacity: int, like: Tensor, most: int) -> StackMemory:
    shape = rows, stack.num_key_value_heads, capacity, stack.head_dim
    layers = range(stack.num_hidden_layers)
    work = workspace(rows, stack.num_attention_heads, shape[1], shape[3], like.device, most=most)
    return StackMemory([like.new_zeros(shape) for _ in layers], [like.new_zeros(shape) for _ in layers], work)

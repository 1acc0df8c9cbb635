"""Dia2's layers for kernels: which networks they run on, and the weights that they take."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ref.cuda.concatenated import concatenated
from torch_ref.cuda.fused_stack import StackLayer
from torch_ref.cuda.rows import usable
from torch_ref.dia2.blocks import MLP, RMSNorm
from torch_ref.dia2.depformer import DepformerLayer
from torch_ref.dia2.dia2 import Dia2
from torch_ref.dia2.transformer import TransformerLayer
from tts_core.dia2.config import GATED


def runs(network: Dia2) -> bool:
    """Return whether the kernels support this network: see torch_ref.cuda.rows.usable.

    Its depformer must not read text, which depends on the action.
    """
    config, weight = network.config, network.transformer.cb0_head.weight
    compute = network.transformer.compute
    return (
        all(usable(weight, stack.head_dim) for stack in (config.transformer, config.depformer))
        and all(stack.activations == GATED for stack in (config.transformer, config.depformer))
        and compute in (None, weight.dtype)
        and not config.depformer_has_text
    )


def gain(norm: RMSNorm, dtype: torch.dtype) -> Tensor:
    """Return a norm's weight as the norm applies it to numbers of a dtype, in float32."""
    return norm.weight.detach().to(dtype).float()


def transformer_layer(layer: TransformerLayer) -> StackLayer:
    """Join the weights of one of the transformer's layers."""
    attention = layer.attn
    qkv = concatenated((attention.q_proj, attention.k_proj, attention.v_proj))
    norms = layer.pre_norm, layer.post_norm, attention.q_norm, attention.k_norm
    return _layer(norms, layer.mlp, qkv, attention.o_proj.weight)


def depformer_layer(layer: DepformerLayer, weight_set: int) -> StackLayer:
    """Collect the weights of one of the depformer's layers, with one set of projections."""
    attention = layer.self_attention
    qkv, out = attention.in_proj[weight_set].weight, attention.out_proj[weight_set].weight
    assert isinstance(qkv, Tensor)
    assert isinstance(out, Tensor)
    norms = layer.pre_norm, layer.post_norm, attention.q_norm, attention.k_norm
    return _layer(norms, layer.mlp, qkv, out)


def _layer(
    norms: tuple[RMSNorm, RMSNorm, RMSNorm, RMSNorm], mlp: MLP, qkv: Tensor, out: Tensor
) -> StackLayer:
    before, after, queries, keys = (gain(norm, qkv.dtype) for norm in norms)
    return StackLayer(before, after, torch.stack((queries, keys)), qkv, out, mlp.wi.weight, mlp.wo.weight)

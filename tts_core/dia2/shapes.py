"""Every tensor of a Dia2 under its canonical name, with its shape. Linears are (out, in).

Canonical names are the published ones; sets of weights are numbered without the gaps of their ids.
"""

from __future__ import annotations

from tts_core.dia2.config import Dia2Config, Dia2StackConfig

Shapes = dict[str, tuple[int, ...]]


def parameter_shapes(config: Dia2Config) -> Shapes:
    """Map canonical names to shapes, in the order of the network."""
    stack, width, ids = config.transformer, config.transformer.hidden_size, config.audio_vocab_size
    shapes: Shapes = {}
    for stream in range(config.n_streams):
        shapes[f"transformer.audio_embeds.{stream}.weight"] = (ids, width)
    shapes |= _text("transformer.text_embed", config.text_vocab_size, config.low_rank_dim, width)
    rows, key_rows = (
        heads * stack.head_dim for heads in (stack.num_attention_heads, stack.num_key_value_heads)
    )
    for i in range(stack.num_hidden_layers):
        at = f"transformer.layers.{i}"
        shapes[f"{at}.pre_norm.weight"] = (width,)
        shapes[f"{at}.attn.q_proj.weight"] = (rows, width)
        shapes[f"{at}.attn.k_proj.weight"] = shapes[f"{at}.attn.v_proj.weight"] = (key_rows, width)
        shapes[f"{at}.attn.o_proj.weight"] = (width, rows)
        shapes |= _attention_norms(f"{at}.attn", stack)
        shapes[f"{at}.post_norm.weight"] = (width,)
        shapes |= _mlp(f"{at}.mlp", stack)
    shapes["transformer.norm.weight"] = (width,)
    shapes["transformer.action_head.weight"] = (config.action_vocab_size, width)
    shapes["transformer.cb0_head.weight"] = (ids, width)
    return shapes | _depformer(config)


def _depformer(config: Dia2Config) -> Shapes:
    stack, width, ids = config.depformer, config.depformer.hidden_size, config.audio_vocab_size
    stages, sets = range(config.n_streams - 1), range(len(config.weight_sets))
    shapes: Shapes = {f"depformer.audio_embeds.{stage}.weight": (ids, width) for stage in stages}
    if config.depformer_has_text:
        shapes |= _text("depformer.text_embed", config.text_vocab_size, width, width)
    for place in sets:
        shapes[f"depformer.depformer_in.{place}.weight"] = (width, config.transformer.hidden_size)
    rows = stack.num_attention_heads * stack.head_dim
    for i in range(stack.num_hidden_layers):
        at = f"depformer.layers.{i}"
        shapes[f"{at}.pre_norm.weight"] = (width,)
        for place in sets:
            shapes[f"{at}.self_attention.in_proj.{place}.weight"] = (3 * rows, width)
            shapes[f"{at}.self_attention.out_proj.{place}.weight"] = (width, rows)
        shapes |= _attention_norms(f"{at}.self_attention", stack)
        shapes[f"{at}.post_norm.weight"] = (width,)
        shapes |= _mlp(f"{at}.mlp", stack)
    shapes["depformer.norm.weight"] = (width,)
    return shapes | {f"depformer.logits.{stage}.weight": (ids, width) for stage in stages}


def _text(at: str, ids: int, inner: int, width: int) -> Shapes:
    projections = {f"{at}.{name}_proj.weight": (width, inner) for name in ("main", "second")}
    return {f"{at}.embedding.weight": (ids, inner), **projections}


def _attention_norms(at: str, stack: Dia2StackConfig) -> Shapes:
    return {f"{at}.{name}_norm.weight": (stack.head_dim,) for name in "qk"}


def _mlp(at: str, stack: Dia2StackConfig) -> Shapes:
    width, inner = stack.hidden_size, stack.intermediate_size
    return {f"{at}.wi.weight": (2 * inner, width), f"{at}.wo.weight": (width, inner)}


def is_norm(name: str) -> bool:
    """Return True for weights of norms, and for the action head, which is as small."""
    return name.endswith("norm.weight") or name == "transformer.action_head.weight"


def is_large(name: str) -> bool:
    """Return True for the linear layers that are quantized: the transformer's, and its head of codes."""
    parts = ("transformer.layers.", "transformer.cb0_head.")
    return name.startswith(parts) and not is_norm(name)

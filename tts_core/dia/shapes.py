"""Every tensor of a Dia network under its canonical (transformers) name, with its shape.

Linears are (out, in).
"""

from __future__ import annotations

from tts_core.dia.config import DiaConfig

Shapes = dict[str, tuple[int, ...]]


def parameter_shapes(config: DiaConfig) -> Shapes:
    """Map canonical names to shapes, in the order of the network."""
    encoder, decoder = config.encoder_config, config.decoder_config
    shapes: Shapes = {"model.encoder.embedding.weight": (encoder.vocab_size, encoder.hidden_size)}
    for i in range(encoder.num_hidden_layers):
        at = f"model.encoder.layers.{i}"
        shapes[f"{at}.pre_sa_norm.weight"] = (encoder.hidden_size,)
        shapes |= _attention(
            f"{at}.self_attention",
            encoder.hidden_size,
            encoder.hidden_size,
            encoder.num_attention_heads * encoder.head_dim,
            encoder.num_key_value_heads * encoder.head_dim,
        )
        shapes[f"{at}.post_sa_norm.weight"] = (encoder.hidden_size,)
        shapes |= _mlp(f"{at}.mlp", encoder.hidden_size, encoder.intermediate_size)
    shapes["model.encoder.norm.weight"] = (encoder.hidden_size,)

    ids = decoder.num_channels * decoder.vocab_size
    shapes["model.decoder.embeddings.embed.weight"] = (ids, decoder.hidden_size)
    for i in range(decoder.num_hidden_layers):
        at = f"model.decoder.layers.{i}"
        shapes[f"{at}.pre_sa_norm.weight"] = (decoder.hidden_size,)
        shapes |= _attention(
            f"{at}.self_attention",
            decoder.hidden_size,
            decoder.hidden_size,
            decoder.num_attention_heads * decoder.head_dim,
            decoder.num_key_value_heads * decoder.head_dim,
        )
        shapes[f"{at}.pre_ca_norm.weight"] = (decoder.hidden_size,)
        shapes |= _attention(
            f"{at}.cross_attention",
            decoder.hidden_size,
            decoder.cross_hidden_size,
            decoder.cross_num_attention_heads * decoder.cross_head_dim,
            decoder.cross_num_key_value_heads * decoder.cross_head_dim,
        )
        shapes[f"{at}.pre_mlp_norm.weight"] = (decoder.hidden_size,)
        shapes |= _mlp(f"{at}.mlp", decoder.hidden_size, decoder.intermediate_size)
    shapes["model.decoder.norm.weight"] = (decoder.hidden_size,)
    shapes["logits_dense.weight"] = (ids, decoder.hidden_size)
    return shapes


def is_norm(name: str) -> bool:
    """Return True for a norm's weight, which stays float32 in every converted checkpoint."""
    return name.endswith("norm.weight")


def _attention(at: str, width: int, source_width: int, query_width: int, kv_width: int) -> Shapes:
    return {
        f"{at}.q_proj.weight": (query_width, width),
        f"{at}.k_proj.weight": (kv_width, source_width),
        f"{at}.v_proj.weight": (kv_width, source_width),
        f"{at}.o_proj.weight": (width, query_width),
    }


def _mlp(at: str, width: int, inner: int) -> Shapes:
    return {f"{at}.gate_up_proj.weight": (2 * inner, width), f"{at}.down_proj.weight": (width, inner)}


def is_large(name: str) -> bool:
    """Return True for a tensor that quantization covers: one that a decoding step reads whole.

    Embeddings are not: a step reads single rows of them.
    """
    return name.endswith(("_proj.weight", "logits_dense.weight"))

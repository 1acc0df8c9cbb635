"""Maps of Dia: nari-labs' layout and transformers' layout."""

from __future__ import annotations

from converters.maps.layouts import Found, Layout, canonical, config_where
from converters.rules.assignment import Drop, Rule
from converters.rules.transforms import CONCAT_ROWS, dense, split_rows
from tts_core.config import without_envelope
from tts_core.dia.config import DiaConfig, read_published

NARI_NAMES = r"(encoder|decoder)\.(embeddings?|layers|norm|logits_dense)\."


def nari_rules(config: DiaConfig) -> list[Rule | Drop]:
    """Map nari-labs' names, v0.1 and 0626, to canonical names.

    Theirs are kernels with input axes first, and one embedding per channel.
    """
    encoder, decoder = config.encoder_config, config.decoder_config
    return [
        Rule("encoder.embedding.weight", "model.encoder.embedding.weight"),
        *[_same(f"encoder.layers.{{}}.{norm}.weight") for norm in ("pre_sa_norm", "post_sa_norm")],
        *_self_attention("encoder.layers.{}.self_attention", encoder),
        *_mlp("encoder.layers.{}.mlp", encoder.hidden_size, encoder.intermediate_size),
        _same("encoder.norm.weight"),
        Rule(
            tuple(f"decoder.embeddings.{channel}.weight" for channel in range(decoder.num_channels)),
            "model.decoder.embeddings.embed.weight",
            CONCAT_ROWS,  # row of (channel c, token t): c · vocab_size + t
        ),
        *[
            _same(f"decoder.layers.{{}}.{norm}.weight")
            for norm in ("pre_sa_norm", "pre_ca_norm", "pre_mlp_norm")
        ],
        *_self_attention("decoder.layers.{}.self_attention", decoder),
        *_cross_attention("decoder.layers.{}.cross_attention", decoder),
        *_mlp("decoder.layers.{}.mlp", decoder.hidden_size, decoder.intermediate_size),
        _same("decoder.norm.weight"),
        Rule(
            "decoder.logits_dense.weight",
            "logits_dense.weight",
            dense((decoder.hidden_size,), (decoder.num_channels, decoder.vocab_size)),
        ),
    ]


def _same(name: str) -> Rule:
    return Rule(name, f"model.{name}")


def _self_attention(at: str, part) -> list[Rule | Drop]:
    queries, keys = (part.num_attention_heads, part.head_dim), (part.num_key_value_heads, part.head_dim)
    query_rows, key_rows = queries[0] * queries[1], keys[0] * keys[1]
    return [
        *[
            Rule(
                f"{at}.{p}_proj.weight",
                f"model.{at}.{p}_proj.weight",
                dense((part.hidden_size,), heads),
                optional=True,
            )
            for p, heads in (("q", queries), ("k", keys), ("v", keys))
        ],
        Rule(  # as nari's own in-memory fusion saves it
            f"{at}.qkv.linear.weight",
            tuple(f"model.{at}.{p}_proj.weight" for p in "qkv"),
            split_rows(query_rows, key_rows, key_rows),
            optional=True,
        ),
        Rule(f"{at}.o_proj.weight", f"model.{at}.o_proj.weight", dense(queries, (part.hidden_size,))),
    ]


def _cross_attention(at: str, part) -> list[Rule | Drop]:
    queries = (part.cross_num_attention_heads, part.cross_head_dim)
    keys = (part.cross_num_key_value_heads, part.cross_head_dim)
    return [
        Rule(f"{at}.q_proj.weight", f"model.{at}.q_proj.weight", dense((part.hidden_size,), queries)),
        Rule(f"{at}.k_proj.weight", f"model.{at}.k_proj.weight", dense((part.cross_hidden_size,), keys)),
        Rule(f"{at}.v_proj.weight", f"model.{at}.v_proj.weight", dense((part.cross_hidden_size,), keys)),
        Rule(f"{at}.o_proj.weight", f"model.{at}.o_proj.weight", dense(queries, (part.hidden_size,))),
    ]


def _mlp(at: str, width: int, inner: int) -> list[Rule | Drop]:
    return [
        Rule(
            f"{at}.wi_fused.weight", f"model.{at}.gate_up_proj.weight", dense((width,), (2, inner))
        ),  # gate, then up
        Rule(f"{at}.wo.weight", f"model.{at}.down_proj.weight", dense((inner,), (width,))),
    ]


TRANSFORMERS_NAMES = r"model\.(encoder|decoder)\.(embeddings?|layers|norm)\.|logits_dense\."


def read(found: Found) -> DiaConfig:
    """Read config.json and generation_config.json."""
    generation = found.json("generation_config.json")
    config = without_envelope(found.json("config.json"))  # an MLX conversion has some of its fields
    return read_published(config, generation, cross_rope=found.hints.cross_rope)


LAYOUTS = {
    "dia_nari": Layout("dia", NARI_NAMES, nari_rules, read, config_where(bool)),
    "dia_transformers": Layout("dia", TRANSFORMERS_NAMES, canonical("dia"), read, config_where(bool)),
}

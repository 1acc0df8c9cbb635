"""MetaVoice's configurations: read from published files and from our own."""

from __future__ import annotations

from typing import Any

import pytest

from tts_core.errors import CheckpointError
from tts_core.metavoice import config as metavoice
from tts_core.metavoice import model

META = {"speaker_cond": True, "speaker_emb_size": 256}
FIRST_ARGS = {  # of the published first_stage.pt
    "n_layer": 24,
    "n_head": 16,
    "n_embd": 2048,
    "block_size": 2048,
    "bias": False,
    "vocab_sizes": [2562],
    "dropout": 0.0,
    "causal": True,
    "norm_type": "rmsnorm",
    "rmsnorm_eps": 1e-5,
    "nonlinearity_type": "swiglu",
    "spk_emb_on_text": True,
    "attn_kernel_type": "torch_attn",
    "swiglu_multiple_of": 256,
    "spkemb_dropout": 0.1,
}
SECOND_ARGS = {  # of the published second_stage.pt; other fields have upstream's defaults
    "n_layer": 6,
    "n_head": 6,
    "n_embd": 384,
    "block_size": 1024,
    "bias": False,
    "vocab_sizes": [1538, 1025],
    "target_vocab_sizes": [1025] * 6,
    "causal": False,
}
FIRST = model.METAVOICE_FIRST_STAGE
SECOND = model.METAVOICE_SECOND_STAGE
SPEAKER = model.METAVOICE_SPEAKER_ENCODER


def checkpoint(args: dict[str, Any], **training: Any) -> dict[str, Any]:
    return {"model_args": args, "meta": META, "config": training}


def first_shapes(config: metavoice.FirstStageConfig = FIRST) -> dict[str, tuple[int, ...]]:
    """Shapes as published, with the tied head."""
    shapes = metavoice.first_stage_parameter_shapes(config)
    return shapes | {"lm_heads.0.weight": shapes["transformer.wtes.0.weight"]}


def test_first_stage_is_read_as_published():
    shapes = first_shapes()
    assert metavoice.read_first_stage(checkpoint(FIRST_ARGS), shapes) == FIRST
    without = {name: shape for name, shape in shapes.items() if name != "lm_heads.0.weight"}
    assert len(without) == len(shapes) - 1  # the same tensor as the embedding: it may be left out
    assert metavoice.read_first_stage(checkpoint(FIRST_ARGS), without) == FIRST


def test_second_stage_is_read_as_published():
    shapes = metavoice.second_stage_parameter_shapes(SECOND)
    assert metavoice.read_second_stage(checkpoint(SECOND_ARGS, causal=False), shapes) == SECOND
    assert SECOND.n_codebooks == 8


def test_speaker_encoder_is_read_as_published():
    shapes = metavoice.speaker_encoder_parameter_shapes(SPEAKER)
    assert metavoice.read_speaker_encoder(shapes) == SPEAKER
    leftovers = {"similarity_weight": (1,), "similarity_bias": (1,)}
    assert metavoice.read_speaker_encoder(shapes | leftovers) == SPEAKER
    with pytest.raises(CheckpointError, match=r"lstm.weight_hh_l1.*\(1024, 256\).*nothing in the file"):
        metavoice.read_speaker_encoder({k: v for k, v in shapes.items() if k != "lstm.weight_hh_l1"})
    with pytest.raises(CheckpointError, match="not those of an LSTM speaker encoder"):
        metavoice.read_speaker_encoder({"linear.weight": (3, 3)})


@pytest.mark.parametrize(("multiple", "inner"), [(None, 5461), (256, 5632), (5461, 5461), (100, 5500)])
def test_feed_forward_width(multiple: int | None, inner: int):
    config = metavoice.FirstStageConfig(2048, inner, 24, 16, 2048, 2562, 256, 1e-5, False)
    args = FIRST_ARGS | {"swiglu_multiple_of": multiple}
    assert metavoice.read_first_stage(checkpoint(args), first_shapes(config)) == config


def test_biases():
    """Without model_args["bias"] the value is upstream's default, True."""
    args = {name: value for name, value in FIRST_ARGS.items() if name != "bias"}
    first = metavoice.FirstStageConfig(2048, 5632, 24, 16, 2048, 2562, 256, 1e-5, True)
    shapes = first_shapes(first)
    assert shapes["transformer.h.3.mlp.swiglu.w3.bias"] == (5632,)
    assert not {"transformer.ln_f.bias", "speaker_cond_pos.bias", "lm_heads.0.bias"} & set(shapes)
    assert metavoice.read_first_stage(checkpoint(args), shapes) == first

    second_args = SECOND_ARGS | {"bias": True}
    second = metavoice.SecondStageConfig(384, 1536, 6, 6, 1024, (1538, 1025), (1025,) * 6, 256, True)
    shapes = metavoice.second_stage_parameter_shapes(second)
    assert shapes["transformer.h.5.ln_2.bias"] == (384,)
    assert not {"speaker_cond_pos.bias", "lm_heads.5.bias"} & set(shapes)
    assert metavoice.read_second_stage(checkpoint(second_args, causal=False), shapes) == second
    with pytest.raises(CheckpointError, match=r"lm_heads.0.bias: nothing by .*, \(1025,\) in the file"):
        metavoice.read_second_stage(checkpoint(second_args), shapes | {"lm_heads.0.bias": (1025,)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"n_layer": 23},
            r"transformer.h.23.ln_1.weight: nothing by the configuration, \(2048,\) in the file",
        ),
        (
            {"block_size": 1024},
            r"wpe.weight: \(1024, 2048\) by the configuration, \(2048, 2048\) in the file",
        ),
        ({"swiglu_multiple_of": None}, r"swiglu.w1.weight: \(5461, 2048\) by .*, \(5632, 2048\) in the file"),
        ({"bias": True}, r"c_attn.bias: \(6144,\) by the configuration, nothing in the file"),
        ({"norm_type": "layernorm"}, "norm_type is 'layernorm', needed 'rmsnorm'"),
        ({"spk_emb_on_text": False}, "spk_emb_on_text is False, needed True"),
        ({"causal": False}, "causal is False"),
        ({"vocab_sizes": [1538, 1025]}, "second stage"),
        ({"vocab_sizes": None}, "positive whole numbers"),
        ({"n_head": 0}, "positive whole numbers"),
        ({"n_head": 3}, "2048 does not divide among 3 heads"),
        ({"rope": True}, "unknown rope"),
    ],
)
def test_what_does_not_fit_is_an_error(change: dict[str, Any], message: str):
    with pytest.raises(CheckpointError, match=message):
        metavoice.read_first_stage(checkpoint(FIRST_ARGS | change), first_shapes())


def test_causality_of_the_second_stage_is_told_twice():
    shapes = metavoice.second_stage_parameter_shapes(SECOND)
    with pytest.raises(CheckpointError, match="config says causal True, model_args False"):
        metavoice.read_second_stage(checkpoint(SECOND_ARGS, causal=True), shapes)
    args = SECOND_ARGS | {"target_vocab_sizes": None}
    with pytest.raises(CheckpointError, match="no target_vocab_sizes"):
        metavoice.read_second_stage(checkpoint(args, causal=False), shapes)


def test_a_model_without_speaker_is_refused():
    with pytest.raises(CheckpointError, match="speaker_cond is not set"):
        metavoice.read_first_stage({"model_args": FIRST_ARGS, "meta": {}}, first_shapes())
    with pytest.raises(CheckpointError, match="model_args missing"):
        metavoice.read_first_stage({}, first_shapes())


def test_quantising_takes_the_layers_linears_alone():
    shapes = first_shapes()
    taken = {name.split(".", 3)[3] for name in shapes if metavoice.is_quantisable(name)}
    assert taken == {
        "attn.c_attn.weight",
        "attn.c_proj.weight",
        "mlp.swiglu.w1.weight",
        "mlp.swiglu.w3.weight",
        "mlp.c_proj.weight",
    }
    assert sum(map(metavoice.is_quantisable, shapes)) == 24 * 5
    assert sum(map(metavoice.is_norm, shapes)) == 24 * 2 + 1

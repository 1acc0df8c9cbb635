from dataclasses import replace

import pytest

from tts_core.errors import CheckpointError
from tts_core.mars5.config import (
    codec_lm_from_shapes,
    codec_lm_parameter_shapes,
    is_norm,
    residual_transformer_from_shapes,
    residual_transformer_parameter_shapes,
)
from tts_core.mars5.model import MARS5_AR, MARS5_NAR

AR_SHAPES = codec_lm_parameter_shapes(MARS5_AR)
NAR_SHAPES = residual_transformer_parameter_shapes(MARS5_NAR)
KINDS = [
    pytest.param(codec_lm_from_shapes, AR_SHAPES, id="ar"),
    pytest.param(residual_transformer_from_shapes, NAR_SHAPES, id="nar"),
]
NAR_HEADS_8 = {"model": "nar", "n_heads": 8, "spk_n_heads": 4, "head_dim": 128, "layer_norm_eps": 1e-6}


def test_sizes_follow_from_the_shapes():
    assert codec_lm_from_shapes(AR_SHAPES) == MARS5_AR
    assert residual_transformer_from_shapes(NAR_SHAPES) == MARS5_NAR
    assert (MARS5_AR.head_dim, MARS5_NAR.head_dim) == (64, 64)
    assert MARS5_AR.intermediate_size == int(1536 * 7 / 3)


def test_narrow_networks_have_one_head():
    shapes = codec_lm_parameter_shapes(
        replace(MARS5_AR, hidden_size=48, num_attention_heads=1, speaker_heads=1)
    )
    assert codec_lm_from_shapes(shapes).num_attention_heads == 1


def test_a_json_beside_the_checkpoint_tells_what_shapes_do_not():
    config = residual_transformer_from_shapes(NAR_SHAPES, NAR_HEADS_8)
    assert (config.num_attention_heads, config.speaker_heads, config.norm_eps) == (8, 4, 1e-6)
    assert residual_transformer_from_shapes(NAR_SHAPES, {"n_heads": 8}).speaker_heads == 8
    assert residual_transformer_from_shapes(NAR_SHAPES, NAR_HEADS_8, heads=32).speaker_heads == 32
    assert codec_lm_from_shapes(AR_SHAPES, {"sliding_window": 16}).sliding_window == 16
    assert residual_transformer_parameter_shapes(config) == NAR_SHAPES


def test_odd_heads_cannot_be_rotated():
    with pytest.raises(CheckpointError, match="head width 3 is odd"):
        replace(MARS5_AR, num_attention_heads=512)


def test_what_contradicts_the_shapes_is_named():
    with pytest.raises(CheckpointError, match=r"dim 512, not 1024; ff_dim 7, not 3072"):
        residual_transformer_from_shapes(NAR_SHAPES, {"dim": 512, "ff_dim": 7, "n_text": 2050})
    with pytest.raises(CheckpointError, match="head_dim 128, not 64"):
        codec_lm_from_shapes(AR_SHAPES, {"head_dim": 128})
    with pytest.raises(CheckpointError, match="rope_interleaved False, not True"):
        codec_lm_from_shapes(AR_SHAPES, {"rope_interleaved": False})
    with pytest.raises(CheckpointError, match="n_vocab 5, not"):
        codec_lm_from_shapes(AR_SHAPES, {"n_vocab": 5})
    with pytest.raises(CheckpointError, match="unknown fields colour, shade"):
        residual_transformer_from_shapes(NAR_SHAPES, {"shade": 1, "colour": 2})
    with pytest.raises(CheckpointError, match="7 heads do not divide a width of 1024"):
        residual_transformer_from_shapes(NAR_SHAPES, {"n_heads": 7})


@pytest.mark.parametrize(("read", "shapes"), KINDS)
def test_missing_tensors_are_named(read, shapes):
    with pytest.raises(CheckpointError, match=r"embed\.weight missing"):
        read({})
    name = "spk_encoder.layers.0.linear2.weight"
    with pytest.raises(CheckpointError, match=name):
        read({known: shape for known, shape in shapes.items() if known != name})
    with pytest.raises(CheckpointError, match="has shape"):
        read(shapes | {name: (1,)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_classes": 1026}, "1026 classes"),
        ({"timestep_size": 7}, "odd"),
        ({"n_codebooks": 7}, "7 codebooks do not divide"),
        ({"num_attention_heads": 7}, "7 heads do not divide"),
    ],
)
def test_nonsense_is_refused(change, message):
    with pytest.raises(CheckpointError, match=f"^ResidualTransformer config: .*{message}"):
        replace(MARS5_NAR, **change)


@pytest.mark.parametrize("shapes", [AR_SHAPES, NAR_SHAPES], ids=["ar", "nar"])
def test_norms(shapes):
    """Every vector belongs to a norm or is the bias of a linear layer; no matrix belongs to a norm."""
    for name, shape in shapes.items():
        of_matrix = name.endswith(".bias") and len(shapes[f"{name[:-4]}weight"]) == 2
        bias = name.endswith("in_proj.bias") or of_matrix
        assert is_norm(name) == (len(shape) == 1 and not bias), name

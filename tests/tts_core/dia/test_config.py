"""The three published schemas with the values of the published files (specs of Dia, section 1)."""

import copy
import json

import pytest

from tts_core.dia.config import (
    DiaDecoderConfig,
    DiaEncoderConfig,
    is_norm,
    parameter_shapes,
    read_converted,
    read_published,
)
from tts_core.dia.model import DIA_0626, DIA_V01
from tts_core.dia.options import DEFAULTS_0626, DEFAULTS_V01, DiaSampling
from tts_core.errors import CheckpointError

DELAYS = [0, 8, 9, 10, 11, 12, 13, 14, 15]
NESTED = {  # nari-labs/Dia-1.6B
    "version": "0.1",
    "training": {},
    "data": {
        "text_length": 1024,
        "audio_length": 3072,
        "channels": 9,
        "text_pad_value": 0,
        "audio_eos_value": 1024,
        "audio_pad_value": 1025,
        "audio_bos_value": 1026,
        "delay_pattern": DELAYS,
    },
    "model": {
        "encoder": {"n_layer": 12, "n_embd": 1024, "n_hidden": 4096, "n_head": 16, "head_dim": 128},
        "decoder": {
            "n_layer": 18,
            "n_embd": 2048,
            "n_hidden": 8192,
            "gqa_query_heads": 16,
            "kv_heads": 4,
            "gqa_head_dim": 128,
            "cross_query_heads": 16,
            "cross_head_dim": 128,
        },
        "dropout": 0.0,
        "normalization_layer_epsilon": 1e-5,
        "rope_min_timescale": 1,
        "rope_max_timescale": 10000,
        "src_vocab_size": 256,
        "tgt_vocab_size": 1028,
        "weight_dtype": "float32",
    },
}
ENCODER = {
    "model_type": "dia_encoder",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 12,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "head_dim": 128,
    "max_position_embeddings": 1024,
    "vocab_size": 256,
    "norm_eps": 1e-5,
    "hidden_act": "silu",
    "initializer_range": 0.02,
}
DECODER = {
    "model_type": "dia_decoder",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 18,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "cross_hidden_size": 1024,
    "cross_num_attention_heads": 16,
    "cross_num_key_value_heads": 16,
    "cross_head_dim": 128,
    "max_position_embeddings": 3072,
    "vocab_size": 1028,
    "num_channels": 9,
    "norm_eps": 1e-5,
    "hidden_act": "silu",
    "initializer_range": 0.02,
}
SHARED = {
    "architectures": ["DiaForConditionalGeneration"],
    "model_type": "dia",
    "is_encoder_decoder": True,
    "delay_pattern": DELAYS,
    "norm_eps": 1e-5,
    "initializer_range": 0.02,
}
IDS = {"bos_token_id": 1026, "eos_token_id": 1024, "pad_token_id": 1025}
OLD_ROPE = {"rope_theta": 10000.0, "rope_scaling": None}
NEW_ROPE = {"rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}}
FLAT = {  # nari-labs/Dia-1.6B-0626
    **SHARED,
    **IDS,
    "torch_dtype": "float32",
    "transformers_version": "4.53.0.dev0",
    "encoder_config": ENCODER | OLD_ROPE,
    "decoder_config": DECODER | OLD_ROPE,
}
TRANSFORMERS_5 = {  # as written by save_pretrained of transformers 5
    **SHARED,
    **dict.fromkeys(IDS),
    "dtype": "float32",
    "use_cache": True,
    "transformers_version": "5.23.0",
    "encoder_config": ENCODER | NEW_ROPE,
    "decoder_config": DECODER | NEW_ROPE | IDS | {"use_cache": True},
}
SCHEMAS = {"nested": NESTED, "flat": FLAT, "transformers5": TRANSFORMERS_5}
NOT_NEEDED = {"text_pad_value", "training", "version", "dropout", "rope_min_timescale", "weight_dtype"}
NOT_NEEDED |= {"model_type", "hidden_act", "initializer_range", "norm_eps", "rope_scaling"}
REQUIRED = {
    "nested": [
        *(f"data.{name}" for name in sorted(NESTED["data"].keys() - NOT_NEEDED)),
        *(f"model.{name}" for name in sorted(NESTED["model"].keys() - NOT_NEEDED)),
        *(f"model.{part}.{name}" for part in ("encoder", "decoder") for name in NESTED["model"][part]),
    ],
    "flat": [
        "delay_pattern",
        *IDS,
        *(
            f"{part}.{name}"
            for part in ("encoder_config", "decoder_config")
            for name in sorted(FLAT[part].keys() - NOT_NEEDED)
        ),
    ],
    "transformers5": [
        "delay_pattern",
        *(f"decoder_config.{name}" for name in IDS),
        "encoder_config.rope_parameters.rope_theta",
        "decoder_config.rope_parameters.rope_theta",
    ],
}


def edited(schema: str, path: str, *value) -> dict:
    """A copy with one field set to `value`, or removed."""
    config = copy.deepcopy(SCHEMAS[schema])
    at, *rest = path.split(".")
    place = config
    while rest:
        place, (at, *rest) = place[at], rest
    if value:
        place[at] = value[0]
    else:
        del place[at]
    return config


def test_all_schemas_mean_the_same_network():
    nested, flat, new = (read_published(config) for config in SCHEMAS.values())
    assert flat == new
    assert (nested, flat) == (DIA_V01, DIA_0626)
    assert nested.encoder_config == flat.encoder_config
    assert nested.decoder_config == flat.decoder_config
    assert (nested.generation, flat.generation) == ("v0.1", "0626")
    assert (nested.sampling, flat.sampling) == (DEFAULTS_V01, DEFAULTS_0626)
    assert DiaSampling(cfg_scale=3.0, temperature=1.2, top_p=0.95, top_k=45) == DEFAULTS_0626
    assert DiaSampling(cfg_scale=3.0, temperature=1.3, top_p=0.95, top_k=45) == DEFAULTS_V01
    for config in (nested, flat):
        assert config.delay_pattern == tuple(DELAYS)
        assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (1026, 1024, 1025)
        assert (config.longest_delay, config.max_text_bytes, config.max_frames) == (15, 1024, 3056)


def test_every_field_lands_where_it_belongs():
    """All numbers differ, so that swapped fields show."""
    config = copy.deepcopy(NESTED)
    config["data"].update(text_length=256, audio_length=384)
    config["model"].update(
        src_vocab_size=300, tgt_vocab_size=1100, rope_max_timescale=777, normalization_layer_epsilon=2e-6
    )
    config["model"]["encoder"] = {"n_layer": 2, "n_embd": 3, "n_hidden": 5, "n_head": 7, "head_dim": 22}
    config["model"]["decoder"] = {
        "n_layer": 13,
        "n_embd": 17,
        "n_hidden": 19,
        "gqa_query_heads": 46,
        "kv_heads": 23,
        "gqa_head_dim": 26,
        "cross_query_heads": 29,
        "cross_head_dim": 31,
    }
    read = read_published(config)
    assert read.encoder_config == DiaEncoderConfig(3, 5, 2, 7, 7, 22, 256, 300, 2e-6, 777.0)
    own, cross = (17, 19, 13, 46, 23, 26), (3, 29, 29, 31)
    assert read.decoder_config == DiaDecoderConfig(*own, *cross, 384, 1100, 9, 2e-6, 777.0)


@pytest.mark.parametrize(("given", "rounded"), [(1, 128), (127, 128), (128, 128), (129, 256), (3000, 3072)])
def test_v01_rounds_lengths_up_to_128(given, rounded):
    texts = read_published(edited("nested", "data.text_length", given))
    assert texts.encoder_config.max_position_embeddings == rounded
    sounds = read_published(edited("nested", "data.audio_length", given))
    assert sounds.decoder_config.max_position_embeddings == rounded
    flat = read_published(edited("flat", "decoder_config.max_position_embeddings", 3000))
    assert flat.decoder_config.max_position_embeddings == 3000


@pytest.mark.parametrize(("schema", "other"), [("nested", False), ("flat", True), ("transformers5", True)])
def test_cross_rope_can_be_overridden(schema, other):
    """A fine-tune saved in the other schema: the switch changes the sampling rule and nothing else."""
    plain = read_published(SCHEMAS[schema])
    same = read_published(SCHEMAS[schema], cross_rope=plain.cross_rope)
    changed = read_published(SCHEMAS[schema], cross_rope=other)
    assert same == plain
    assert changed.cross_rope is other
    assert changed.generation == ("v0.1" if other else "0626")
    assert changed.sampling == (DEFAULTS_V01 if other else DEFAULTS_0626)
    assert (changed.encoder_config, changed.decoder_config) == (plain.encoder_config, plain.decoder_config)
    kept = read_published(SCHEMAS[schema], {"temperature": 0.7}, cross_rope=other)
    assert kept.sampling.temperature == 0.7


@pytest.mark.parametrize("schema", SCHEMAS)
def test_generation_config_replaces_what_it_names(schema):
    default = read_published(SCHEMAS[schema]).sampling
    generation = {
        "guidance_scale": 2.5,
        "temperature": 1.7,
        "top_p": 0.8,
        "top_k": 30,
        "do_sample": True,
        "max_length": 9,
    }
    assert read_published(SCHEMAS[schema], generation).sampling == DiaSampling(2.5, 1.7, 0.8, 30)
    partly = {"top_k": None, "temperature": 0.9, "eos_token_id": 1024}
    sampling = read_published(SCHEMAS[schema], partly).sampling
    assert sampling == DiaSampling(default.cfg_scale, 0.9, default.top_p, default.top_k)
    assert read_published(SCHEMAS[schema], {}).sampling == default


@pytest.mark.parametrize(
    ("schema", "path"), [(schema, path) for schema, paths in REQUIRED.items() for path in paths]
)
def test_missing_fields_are_named(schema, path):
    with pytest.raises(CheckpointError, match=path.rpartition(".")[2]):
        read_published(edited(schema, path))


def test_all_missing_fields_are_named_at_once():
    config = copy.deepcopy(FLAT)
    for name in ("head_dim", "vocab_size", "hidden_size"):
        del config["decoder_config"][name]
    with pytest.raises(
        CheckpointError,
        match=r"missing decoder_config\.hidden_size, decoder_config\.head_dim, decoder_config\.vocab_size",
    ):
        read_published(config)


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ("nested", "novel"),
        ("nested", "data.novel"),
        ("nested", "model.novel"),
        ("nested", "model.encoder.novel"),
        ("nested", "model.decoder.novel"),
        ("flat", "novel"),
        ("flat", "encoder_config.novel"),
        ("flat", "decoder_config.novel"),
        ("transformers5", "decoder_config.novel"),
    ],
)
def test_unknown_fields_are_named(schema, place):
    with pytest.raises(CheckpointError, match="novel"):
        read_published(edited(schema, place, 1))


@pytest.mark.parametrize("place", ["model", "model.encoder", "model.decoder"])
def test_harmless_fields_of_older_files(place):
    config = edited("nested", f"{place}.mlp_activations", ["silu", "linear"])
    assert read_published(config) == read_published(NESTED)


def test_norm_eps_may_stand_at_the_top_only():
    config = edited("flat", "encoder_config.norm_eps")
    config["norm_eps"] = 3e-6
    read = read_published(config)
    assert (read.encoder_config.norm_eps, read.decoder_config.norm_eps) == (3e-6, 1e-5)


@pytest.mark.parametrize(
    "config", [{}, {"model_type": "dia"}, {"encoder_config": {}}, {"data": {}}, {"model": {}}]
)
def test_not_a_dia_configuration(config):
    with pytest.raises(CheckpointError, match="not a Dia configuration"):
        read_published(config)


@pytest.mark.parametrize(
    ("schema", "path", "value", "message"),
    [
        ("flat", "decoder_config.hidden_act", "gelu", "hidden_act 'gelu'"),
        ("flat", "encoder_config.rope_scaling", {"type": "linear"}, "rope_scaling .*not None"),
        (
            "transformers5",
            "decoder_config.rope_parameters.rope_type",
            "yarn",
            "rope_type 'yarn', not 'default'",
        ),
        ("nested", "model.rope_min_timescale", 2, "rope_min_timescale 2"),
        ("nested", "data.text_pad_value", 5, "text_pad_value 5"),
        ("flat", "delay_pattern", DELAYS[:8], "8 .* 9 channels"),
        ("flat", "delay_pattern", [1, *DELAYS[1:]], "start at 0"),
        ("flat", "delay_pattern", [0, -1, *DELAYS[2:]], "delay_pattern .*each item a whole number from 0"),
        ("flat", "decoder_config.cross_hidden_size", 512, "512 is not the encoder's width 1024"),
        ("flat", "eos_token_id", 1027, "1027, 1025, 1026.*lowest"),
        ("flat", "pad_token_id", 1026, "must differ"),
        ("flat", "bos_token_id", 1028, "1028.*below 1028"),
        ("flat", "decoder_config.num_key_value_heads", 3, "16 heads of 128 for 3 key heads"),
        ("flat", "decoder_config.cross_num_key_value_heads", 5, "16 heads for 5 key heads"),
        ("flat", "encoder_config.head_dim", 33, "16 heads of 33 .* even width"),
        ("nested", "model.decoder.n_embd", -1, "n_embd -1: expected a whole number"),
        ("flat", "encoder_config", None, "encoder_config None: expected an object"),
        ("flat", "decoder_config", [], "decoder_config \\[\\]: expected an object"),
        ("flat", "bos_token_id", "x", "whole number"),
        ("flat", "delay_pattern", 3, "delay_pattern"),
        ("flat", "delay_pattern", [0, 1.5], "delay_pattern"),
        ("flat", "own_speakers", ["slt"], r"own_speakers \('slt',\) are not two names"),
        ("flat", "own_speakers", "slt", "own_speakers 'slt': expected a list"),
        ("flat", "own_speakers", [1, 2], "own_speakers"),
    ],
)
def test_nonsense_is_refused(schema, path, value, message):
    with pytest.raises(CheckpointError, match=message):
        read_published(edited(schema, path, value))


def test_own_speakers_are_kept_and_unknown_to_older_folders():
    config = read_published({**SCHEMAS["flat"], "own_speakers": ["slt", "rms"]})
    assert config.own_speakers == ("slt", "rms")
    assert read_converted(json.loads(json.dumps(config.to_dict()))) == config
    older = {name: value for name, value in DIA_0626.to_dict().items() if name != "own_speakers"}
    assert read_converted(older) == DIA_0626


def test_norms_are_the_vectors_of_the_published_network():
    """Its shapes are those of the committed lists: tests/converters/maps."""
    shapes = parameter_shapes(read_published(FLAT))
    assert sum(is_norm(name) for name in shapes) == 12 * 2 + 1 + 18 * 3 + 1
    assert all(is_norm(name) == (len(shape) == 1) for name, shape in shapes.items())


def test_a_bad_generation_config_is_the_checkpoints_fault():
    with pytest.raises(CheckpointError, match=r"generation_config.json: temperature"):
        read_published(FLAT, {"temperature": -1})

"""Dia2's configuration: the published schema, our own, and what is refused."""

import json
from dataclasses import replace

import pytest

from tests.tiny.dia2 import GOLDEN
from tests.tiny.networks import dia2_config
from tts_core.codecs.mimi import MIMI_24KHZ
from tts_core.dia2.config import is_large, is_norm, parameter_shapes, read_published
from tts_core.dia2.model import DIA2_1B, DIA2_2B, check
from tts_core.errors import CheckpointError
from tts_core.models import MODELS

PUBLISHED = {name: json.loads((GOLDEN / name / "config.json").read_text()) for name in ("v_main", "v_text")}


def changed(name: str, block: str, **values: object) -> dict:
    config = json.loads(json.dumps(PUBLISHED[name]))
    place = config
    for part in block.split("."):
        place = place[part]
    place.update(values)
    return config


def test_every_default_of_the_original():
    config = read_published(PUBLISHED["v_text"])
    assert (config.audio_pad_id, config.audio_bos_id, config.text_zero_id) == (33, 32, 7)
    assert config.weights_schedule == (0, 1, 2, 3, 4, 5)
    assert config.depformer_has_text
    assert config.depformer_has_rope
    assert (config.second_stream_ahead, config.norm_eps, config.low_rank_dim) == (0, 1e-5, 36)
    assert config.transformer.activations == ("relu", "linear")
    assert config.depformer.activations == ("gelu", "linear")
    assert (config.n_streams, config.longest_delay, config.codebook_size) == (7, 4, 32)
    other = read_published(PUBLISHED["v_main"], text_bos_id=9)
    assert (other.text_bos_id, other.stage_sets, other.rope_min_timescale) == (9, (0, 1, 1, 2), 1)
    assert other.transformer.activations == other.depformer.activations == ("silu", "linear")


def test_gaps_of_the_schedule_are_closed():
    config = dia2_config()
    assert (config.weight_sets, config.stage_sets) == ((0, 2, 5), (0, 1, 1, 2, 0))
    assert [name for name in parameter_shapes(config) if "depformer_in" in name] == [
        f"depformer.depformer_in.{place}.weight" for place in range(3)
    ]


@pytest.mark.parametrize(
    ("block", "values", "named"),
    [
        ("data", {"channels": 5}, "data.channels 5, not 7"),
        ("data", {"delay_pattern": [0, 1, 1, 1, 1]}, "delay_pattern"),
        ("data", {"delay_pattern": "none"}, "delay_pattern 'none': expected a list"),
        ("data", {"text_pad_token_id": 400}, "text_pad_id 400 is not an id below 371"),
        ("data", {"text_vocab_size": None}, "text_vocab_size None"),
        ("data", {"text_zero_token_id": -1}, "text_zero_token_id -1: expected a whole number from 0"),
        ("data", {"audio_pad_token_id": 64}, "pad is also another special id"),
        ("data", {"audio_bos_token_id": 0}, "no audio id is left for codes"),
        ("data", {"second_stream_ahead": "two"}, "second_stream_ahead 'two'"),
        ("data", {"action_vocab_size": 1}, "action_vocab_size is below 2"),
        ("model.depformer", {"kv_heads": 1}, "1 key heads for 3 heads; in_proj has as many of each"),
        ("model.decoder", {"kv_heads": 4}, "6 heads of 10 for 4 key heads"),
        ("model.decoder", {"gqa_head_dim": 9}, "an even width"),
        ("model.depformer", {"mlp_activations": ["tanh", "linear"]}, "one of gelu, linear, relu, silu"),
        ("model.depformer", {"mlp_activations": "silu"}, "mlp_activations 'silu': .* expected a list of 2"),
        ("model.depformer", {"apply_rope": "yes"}, "apply_rope 'yes': expected true or false"),
        ("model", {"rope_min_timescale": 20000}, "rope_max_timescale is below rope_min_timescale"),
        ("runtime", {"weights_schedule": [0, 1]}, "weights_schedule .* a set for each of the 4 stages"),
        ("runtime", {"weights_schedule": [0, 1, 1, -1]}, "weights_schedule"),
    ],
)
def test_what_cannot_run_is_named(block, values, named):
    with pytest.raises(CheckpointError, match=named):
        read_published(changed("v_main", block, **values))


@pytest.mark.parametrize("block", ["data", "model", "runtime"])
def test_a_missing_block_is_named(block):
    config = {name: value for name, value in PUBLISHED["v_main"].items() if name != block}
    with pytest.raises(CheckpointError, match=f"missing .*{block}"):
        read_published(config)


def test_missing_fields_are_all_named():
    config = changed("v_main", "data")
    del config["data"]["text_vocab_size"], config["model"]["depformer"]["n_embd"]
    with pytest.raises(CheckpointError, match=r"missing model\.depformer\.n_embd, data\.text_vocab_size"):
        read_published(config)


@pytest.mark.parametrize(("config", "layers"), [(DIA2_1B, 123), (DIA2_2B, 152)])
def test_calls_of_layers_in_a_frame(config, layers):
    configs = {"dia2": config, "mimi": MIMI_24KHZ}
    assert MODELS["dia2"].speed.layers(configs) == layers
    assert MODELS["dia2"].speed.real_time(configs) == 80
    check(configs, MODELS["dia2"].speed.documents(configs))


def test_kinds_of_tensors():
    names = list(parameter_shapes(DIA2_2B))
    large = [name for name in names if is_large(name)]
    assert not any(is_norm(name) for name in large)
    assert not any("embed" in name for name in large)
    assert sum(name.endswith("norm.weight") for name in names) == sum(map(is_norm, names)) - 1
    assert not is_large("transformer.action_head.weight")


def test_another_codec_is_refused():
    documents = MODELS["dia2"].speed.documents({})
    with pytest.raises(CheckpointError, match="5 codebooks of 2048 codes, the model has 32 streams"):
        check({"dia2": DIA2_2B, "mimi": replace(MIMI_24KHZ, n_codebooks=5)}, documents)

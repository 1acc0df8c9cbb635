"""Every map against the names and shapes of the full-size published checkpoints."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.lib.checkpoints import DAC_CONFIG, DIA_CONFIG, FIRST_STAGE, SECOND_STAGE
from converters.maps.table import layouts, recognize
from converters.rules.assignment import Move, assigned, dropped
from tts_core import models
from tts_core.codecs import dac, encodec
from tts_core.codecs.encodec import ENCODEC_24KHZ
from tts_core.codecs.mbd import (
    PUBLISHED_UNET,
    MbdBandConfig,
    MbdConfig,
    MbdProcessorConfig,
    MbdScheduleConfig,
)
from tts_core.codecs.mimi import MIMI_24KHZ
from tts_core.codecs.qwen3_codec import QWEN3_CODEC_12HZ
from tts_core.codecs.vocos import VOCOS_ENCODEC_24KHZ
from tts_core.dia import config as dia
from tts_core.dia2.model import DIA2_1B, DIA2_2B
from tts_core.errors import CheckpointError
from tts_core.mars5 import config as mars5
from tts_core.mars5.model import MARS5_AR, MARS5_NAR
from tts_core.metavoice import config as metavoice
from tts_core.metavoice.model import (
    METAVOICE_FIRST_STAGE,
    METAVOICE_SECOND_STAGE,
    METAVOICE_SPEAKER_ENCODER,
)
from tts_core.qwen3.model import qwen3

KEYS = Path(__file__).parents[2] / "data/keys"
Shapes = dict[str, tuple[int, ...]]

DIA, DAC = dia.read_published(DIA_CONFIG), dac.read_transformers(DAC_CONFIG)
SCHEDULE = MbdScheduleConfig(
    beta_t0=1e-5, beta_t1=0.029, beta_exp=7.5, num_steps=1000, clip=5.0, noise_scale=1.0
)
MBD = MbdConfig(
    sample_rate=24000,
    bands=tuple(
        MbdBandConfig(PUBLISHED_UNET, SCHEDULE, MbdProcessorConfig(8, (power,) * 8) if power else None)
        for power in (None, None, 0.4, 0.75)
    ),
)
# layout, configuration; of the published files' tables: tensors, total of numbers; tensors that are dropped
LISTS: dict[str, tuple[str, Any, int, int, int]] = {
    "dia_nari": ("dia_nari", DIA, 343, 1_611_160_576, 0),
    "dia_transformers": ("dia_transformers", DIA, 335, 1_611_160_576, 0),
    "dac_descript": ("dac_descript", DAC, 301, 76_651_890, 0),
    "dac_descript_parametrized": ("dac_descript", DAC, 301, 76_651_890, 0),
    "dac_transformers": ("dac_transformers", DAC, 223, 76_620_777, 0),
    "encodec_facebook": ("encodec_facebook", ENCODEC_24KHZ, 252, 23_273_218, 96),
    "encodec_transformers": ("encodec_transformers", ENCODEC_24KHZ, 252, 23_273_218, 96),
    "encodec_transformers_parametrized": ("encodec_transformers", ENCODEC_24KHZ, 252, 23_273_218, 96),
    "vocos_charactr": ("vocos_charactr", VOCOS_ENCODEC_24KHZ, 82, 10_082_690, 1),
    "mimi_transformers": ("mimi_transformers", MIMI_24KHZ, 350, 96_151_393, 32),
    "mimi_kyutai": ("mimi_kyutai", MIMI_24KHZ, 318, 96_151_393, 32),
    "dia2_1b": ("dia2_published", DIA2_1B, 440, 1_076_244_736, 0),
    "dia2_2b": ("dia2_published", DIA2_2B, 450, 1_919_556_608, 0),
    "mars5_ar": ("mars5_ar", MARS5_AR, 273, 737_788_417 + 3072 * 8196, 0),
    "mars5_nar": ("mars5_nar", MARS5_NAR, 487, 450_232_331 + 1024 * 2051, 0),
    # the head is also in the file
    "metavoice_first_stage": (
        "metavoice_first_stage",
        METAVOICE_FIRST_STAGE,
        173,
        1_243_191_296 + 2562 * 2048,
        0,
    ),
    "metavoice_second_stage": ("metavoice_second_stage", METAVOICE_SECOND_STAGE, 47, 14_459_136, 0),
    "metavoice_speaker_encoder": (
        "metavoice_speaker_encoder",
        METAVOICE_SPEAKER_ENCODER,
        16,
        1_423_616 + 2,
        2,
    ),
    "multi_band_diffusion": ("mbd", MBD, 642, 1_145_748_888, 2),
    "qwen3_0.6b_custom_voice": ("qwen3_published", qwen3("0b6", "custom_voice"), 402, 905_788_672, 0),
    "qwen3_0.6b_base": ("qwen3_published", qwen3("0b6", "base"), 478, 914_643_008, 0),
    "qwen3_1.7b_custom_voice": ("qwen3_published", qwen3("1b7", "voice_design"), 404, 1_916_676_352, 0),
    "qwen3_1.7b_base": ("qwen3_published", qwen3("1b7", "base"), 480, 1_928_677_440, 0),
    # flags, and 16 unread books
    "qwen3_codec": ("qwen3_codec", QWEN3_CODEC_12HZ, 496, 170_557_441, 32 + 2 * 16),
}
LENGTHS = {  # of the published files: dtype, whether there is metadata, bytes
    "dia2_1b": ("F32", False, 4_305_028_488),
    "dia2_2b": ("F32", False, 7_678_277_416),
    "qwen3_0.6b_base": ("BF16", False, 1_829_344_272),
    "qwen3_0.6b_custom_voice": ("BF16", True, 1_811_626_576),
    "qwen3_1.7b_custom_voice": ("BF16", True, 3_833_402_552),
    "qwen3_codec": ("F32", False, 682_293_092),
}
every_list = pytest.mark.parametrize("name", LISTS)


def key_list(name: str) -> Shapes:
    return {key: tuple(shape) for key, shape in json.loads((KEYS / f"{name}.json").read_text()).items()}


def planned(name: str, shapes: Shapes) -> list[Move]:
    layout, config, *_ = LISTS[name]
    known = layouts()[layout]
    return assigned(known.rules(config), shapes, models.network(known.kind).parameter_shapes(config))


def left(name: str, shapes: Shapes) -> dict[str, str]:
    layout, config, *_ = LISTS[name]
    return dropped(layouts()[layout].rules(config), shapes)


def test_every_list_is_tested() -> None:
    assert {path.stem for path in KEYS.glob("*.json")} == LISTS.keys()


@every_list
def test_a_list_is_recognized_and_planned(name: str) -> None:
    """Every tensor is claimed or dropped."""
    shapes = key_list(name)
    layout, _, tensors, numbers, without = LISTS[name]
    assert (len(shapes), sum(map(math.prod, shapes.values()))) == (tensors, numbers)
    assert recognize(list(shapes), {}) == layout
    claimed = {source for move in planned(name, shapes) for source in move.sources}
    assert claimed == shapes.keys() - left(name, shapes).keys()
    assert len(left(name, shapes)) == without


@every_list
def test_any_tensor_missing_superfluous_or_of_another_shape_is_named(name: str) -> None:
    shapes = key_list(name)
    needed = sorted(shapes.keys() - left(name, shapes).keys())
    for key in needed[:: max(1, len(needed) // 12)]:
        with pytest.raises(CheckpointError, match=re.escape(key)):
            planned(name, {other: shape for other, shape in shapes.items() if other != key})
        with pytest.raises(CheckpointError, match=re.escape(key)):
            planned(name, shapes | {key: (*shapes[key], 1)})
    with pytest.raises(CheckpointError, match=r"unexpected: transformer\.layers\.99"):
        planned(name, shapes | {"transformer.layers.99.mlp.w.weight": (1,)})


def test_names_tell_the_layout() -> None:
    """A layout has all of its own names and less than half of any other model's."""
    lists = {name: list(key_list(name)) for name in LISTS}
    stages = {"metavoice_first_stage", "metavoice_second_stage"}  # transformers of one model
    for layout, known in layouts().items():
        for name, names in lists.items():
            matching = sum(bool(re.match(known.names, each)) for each in names)
            if LISTS[name][0] == layout:
                assert matching == len(names), (layout, name)
            elif {layout, name} != stages:
                assert 2 * matching < len(names), (layout, name)


@pytest.mark.parametrize("name", LENGTHS)
def test_a_list_is_as_long_as_the_published_file(name: str) -> None:
    code, has_metadata, length = LENGTHS[name]
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}} if has_metadata else {}
    place = 0
    for key, shape in sorted(key_list(name).items()):
        size = {"F32": 4, "BF16": 2}[code] * math.prod(shape)
        header[key] = {"dtype": code, "shape": list(shape), "data_offsets": [place, place + size]}
        place += size
    text = len(json.dumps(header, separators=(",", ":")))
    assert abs(8 + text + place - length) < 200  # the order of tensors moves digits of offsets


def test_sizes_come_from_the_shapes() -> None:
    for name in (name for name in LISTS if name.startswith("encodec")):
        assert encodec.from_shapes(key_list(name)) == ENCODEC_24KHZ
    assert mars5.codec_lm_from_shapes(key_list("mars5_ar")) == MARS5_AR
    assert mars5.residual_transformer_from_shapes(key_list("mars5_nar")) == MARS5_NAR
    first, second, speaker = (name for name in LISTS if name.startswith("metavoice"))
    meta = {"meta": {"speaker_cond": True, "speaker_emb_size": 256}}
    assert (
        metavoice.read_first_stage({"model_args": FIRST_STAGE, **meta}, key_list(first))
        == METAVOICE_FIRST_STAGE
    )
    assert (
        metavoice.read_second_stage({"model_args": SECOND_STAGE, **meta}, key_list(second))
        == METAVOICE_SECOND_STAGE
    )
    assert metavoice.read_speaker_encoder(key_list(speaker)) == METAVOICE_SPEAKER_ENCODER


# other forms of the same checkpoints


@pytest.mark.parametrize(
    ("name", "without"),
    [
        ("dac_descript", "weight_g"),
        ("encodec_facebook", ("weight_g", "inited", "cluster_size", "embed_avg")),
        ("encodec_transformers", ("weight_g", "inited", "cluster_size", "embed_avg")),
    ],
)
def test_folded_weights(name: str, without: str | tuple[str, ...]) -> None:
    """Also without tensors that only training needs."""
    shapes = {
        re.sub("weight_v$", "weight", key): shape
        for key, shape in key_list(name).items()
        if not key.endswith(without)
    }
    assert recognize(list(shapes), {}) == name
    assert len(planned(name, shapes)) == len(shapes)
    if name.startswith("encodec"):
        assert encodec.from_shapes(shapes) == ENCODEC_24KHZ


def test_fused_qkv_takes_the_place_of_three_kernels() -> None:
    shapes = key_list("dia_nari")
    for part, count, rows, width in (("encoder", 12, 6144, 1024), ("decoder", 18, 3072, 2048)):
        for i in range(count):
            for p in "qkv":
                del shapes[f"{part}.layers.{i}.self_attention.{p}_proj.weight"]
            shapes[f"{part}.layers.{i}.self_attention.qkv.linear.weight"] = (rows, width)
    moves = {move.target: move for move in planned("dia_nari", shapes)}
    assert moves["model.decoder.layers.3.self_attention.k_proj.weight"].how.name == "rows[2048:2560]"
    shapes["decoder.layers.3.self_attention.k_proj.weight"] = (2048, 4, 128)
    with pytest.raises(CheckpointError, match="filled twice"):
        planned("dia_nari", shapes)


def test_the_tied_head_is_made_of_both_of_its_tensors() -> None:
    name = "metavoice_first_stage"
    moves = {move.target: move for move in planned(name, key_list(name))}
    assert len(moves) == 172
    tied = moves["transformer.wtes.0.weight"]
    assert tied.sources == ("transformer.wtes.0.weight", "lm_heads.0.weight")


def test_filters_of_multi_band_diffusion_are_computed() -> None:
    shapes = key_list("multi_band_diffusion")
    whys = left("multi_band_diffusion", shapes)
    assert sorted(whys) == [f"{b}.processor_state.split_bands.lowpass.filters" for b in (2, 3)]
    assert all("computed" in why for why in whys.values())
    moves = planned("multi_band_diffusion", shapes)
    counts = [math.prod(move.shape) for move in moves if move.target.startswith("bands.0.")]
    assert (len(counts), sum(counts)) == (158, 286_435_008)

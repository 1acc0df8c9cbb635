"""Multi-band diffusion's map: the full-size list, and a tiny published file read to the last number."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from converters.maps.layouts import layouts, recognize
from converters.maps.mbd import rules
from converters.published import open_published
from converters.rules.plan import dropped, plan
from tests.tiny.mbd import CONFIG, FIRST, SCHEDULE, mbd_tensors, published_content, write_published
from tts_core.codecs.mbd import (
    PUBLISHED_UNET,
    MbdBandConfig,
    MbdConfig,
    MbdProcessorConfig,
    MbdScheduleConfig,
    parameter_shapes,
)
from tts_core.errors import CheckpointError

KEYS = Path(__file__).parents[2] / "data/keys/multi_band_diffusion.json"
FULL_SCHEDULE = MbdScheduleConfig(
    beta_t0=1e-5, beta_t1=0.029, beta_exp=7.5, num_steps=1000, clip=5.0, noise_scale=1.0
)
FULL = MbdConfig(
    sample_rate=24000,
    bands=tuple(
        MbdBandConfig(PUBLISHED_UNET, FULL_SCHEDULE, MbdProcessorConfig(8, (power,) * 8) if power else None)
        for power in (None, None, 0.4, 0.75)
    ),
)


def key_list() -> dict[str, tuple[int, ...]]:
    return {key: tuple(shape) for key, shape in json.loads(KEYS.read_text()).items()}


def test_full_size_list_is_recognised_and_planned():
    shapes = key_list()
    assert recognize(list(shapes), {}) == "mbd"
    assert layouts()["mbd"].kind == "mbd"
    moves = plan(rules(FULL), shapes, parameter_shapes(FULL))
    left = dropped(rules(FULL), shapes)
    assert sorted(left) == [f"{b}.processor_state.split_bands.lowpass.filters" for b in (2, 3)]
    assert all("computed" in why for why in left.values())
    claimed = [source for move in moves for source in move.sources]
    assert sorted([*claimed, *left]) == sorted(shapes)
    counts = [math.prod(move.shape) for move in moves if move.target.startswith("bands.0.")]
    assert (len(counts), sum(counts)) == (158, 286_435_008)


def test_any_tensor_missing_extra_or_of_another_shape_is_named():
    shapes = key_list()
    for name in list(shapes)[::130]:
        if name.endswith("filters"):
            continue
        with pytest.raises(CheckpointError, match=re.escape(name)):
            plan(rules(FULL), {k: v for k, v in shapes.items() if k != name}, parameter_shapes(FULL))
        with pytest.raises(CheckpointError, match=re.escape(name)):
            plan(rules(FULL), shapes | {name: (*shapes[name], 1)}, parameter_shapes(FULL))
    extra = {"1.model_state.bilstm.lstm.weight_ih_l0": (4, 4)}
    with pytest.raises(CheckpointError, match=r"unexpected: 1\.model_state\.bilstm"):
        plan(rules(FULL), shapes | extra, parameter_shapes(FULL))


def test_one_level_and_no_processor_leave_no_rule_idle():
    flat = replace(FIRST, depth=1)
    config = replace(CONFIG, bands=(MbdBandConfig(flat, SCHEDULE, None),))
    shapes = {
        name.replace("bands.", "").replace(".unet.", ".model_state."): shape
        for name, shape in parameter_shapes(config).items()
    }
    assert len(plan(rules(config), shapes, parameter_shapes(config))) == len(shapes)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="torch writes the file")
    path = tmp_path_factory.mktemp("mbd") / "mbd_comp_8.pt"
    return write_published(path, published_content(CONFIG, mbd_tensors()))


def test_a_published_file_is_read_to_the_last_number(published):
    part = open_published([published], parts=("mbd",)).parts["mbd"]
    assert part.config == CONFIG
    assert part.names() == list(parameter_shapes(CONFIG))
    for name, tensor in mbd_tensors().items():
        np.testing.assert_array_equal(part.read(name), tensor, err_msg=name)


def test_sizes_at_odds_with_the_tensors_are_printed_both(tmp_path):
    pytest.importorskip("torch", reason="torch writes the file")
    content = published_content(CONFIG, mbd_tensors())
    content[0]["cfg"]["diffusion_unet"]["hidden"] = 8
    with pytest.raises(CheckpointError) as caught:
        open_published([write_published(tmp_path / "mbd.pt", content)], parts=("mbd",))
    said = str(caught.value)
    assert "0.model_state.encoders.0.conv.weight has shape (4, 1, 8)" in said
    assert "expected (8, 1, 8)" in said

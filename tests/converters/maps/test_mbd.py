"""Multi-band diffusion's map: a tiny published file read to the last number; full size: test_full_size.py."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from converters.maps.mbd import rules
from converters.published import open_published
from converters.rules.assignment import assigned
from tests.tiny.mbd import CONFIG, FIRST, SCHEDULE, published_content, write_published
from tests.tiny.networks import tiny
from tts_core.codecs.mbd import (
    MbdBandConfig,
    parameter_shapes,
)
from tts_core.errors import CheckpointError


def test_one_level_and_no_processor_leave_no_rule_idle():
    flat = replace(FIRST, depth=1)
    config = replace(CONFIG, bands=(MbdBandConfig(flat, SCHEDULE, None),))
    shapes = {
        name.replace("bands.", "").replace(".unet.", ".model_state."): shape
        for name, shape in parameter_shapes(config).items()
    }
    assert len(assigned(rules(config), shapes, parameter_shapes(config))) == len(shapes)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="torch writes the file")
    path = tmp_path_factory.mktemp("mbd") / "mbd_comp_8.pt"
    return write_published(path, published_content(CONFIG, tiny("mbd").tensors))


def test_a_published_file_is_read_to_the_last_number(published):
    part = open_published([published], parts=("mbd",)).parts["mbd"]
    assert part.config == CONFIG
    assert part.names() == list(parameter_shapes(CONFIG))
    for name, tensor in tiny("mbd").tensors.items():
        np.testing.assert_array_equal(part.read(name), tensor, err_msg=name)


def test_sizes_at_odds_with_the_tensors_are_printed_both(tmp_path):
    pytest.importorskip("torch", reason="torch writes the file")
    content = published_content(CONFIG, tiny("mbd").tensors)
    content[0]["cfg"]["diffusion_unet"]["hidden"] = 8
    with pytest.raises(CheckpointError) as caught:
        open_published([write_published(tmp_path / "mbd.pt", content)], parts=("mbd",))
    said = str(caught.value)
    assert "0.model_state.encoders.0.conv.weight has shape (4, 1, 8)" in said
    assert "expected (8, 1, 8)" in said

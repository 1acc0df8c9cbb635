"""Dia's running batch on kernels: requests have the codes that they have by themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.sides import YARDSTICK
from tests.tiny.dia_served import requests, served
from tests.tiny.networks import dia_config, tiny
from tests.torch_ref.cuda.marks import DEVICE, kernel_marks
from torch_ref.cuda.batch import CapturedBatch
from torch_ref.cuda.triton import INTERPRETED
from torch_ref.dia.pipeline import compose
from torch_ref.loading import Parts
from tts_core.results import merge

pytestmark = [
    *kernel_marks(),
    pytest.mark.skipif(INTERPRETED, reason="takes hours in Triton's interpreter"),
]


def pipeline() -> Any:
    config = dia_config(positions=400, text_positions=300)
    config = replace(config, decoder_config=replace(config.decoder_config, head_dim=16, cross_head_dim=32))
    network = YARDSTICK.network("dia", tiny(config, seed=3, eos=1.3)).to(DEVICE)
    codec = YARDSTICK.network("dac", tiny("dac")).to(DEVICE)
    return compose({"dia": network, "dac": codec}, **Parts.fastest("dia", codec))


def test_codes_are_those_of_the_request_alone() -> None:
    """Among others that arrive and leave at random; each in the slots of one captured step."""
    voice = pipeline()
    assert isinstance(voice.session(1).slots.batch, CapturedBatch)
    asked = requests(voice)
    for places in (1, 5):
        for place, found in enumerate(served(voice, asked, places=places, seed=places)):
            expected = merge(list(voice.speak(asked[place])))
            np.testing.assert_array_equal(found.codes, expected.codes, err_msg=f"request {place}")
            assert found.finish_reason == expected.finish_reason

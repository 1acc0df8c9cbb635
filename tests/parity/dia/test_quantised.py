"""Quantized folders on both sides: PyTorch dequantizes the numbers that MLX multiplies directly."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from mlx import nn

import mlx_port
import torch_ref
from benchmarks.quantised_parity import FORMS, make
from tests.sides import ORACLE, PORT, YARDSTICK, Side
from tests.tolerance import assert_within
from tts_core.dia.text import tokenize

pytestmark = pytest.mark.rest

TEXT = "[S1] Hello, this is a voice."
QUANTISED = [form for form in FORMS if "quantization" in FORMS[form]]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory):
    @cache
    def folder(form: str) -> Path:
        place = tmp_path_factory.mktemp("quantised") / form.replace(" ", "-")
        make(form, place)
        return place

    return folder


@pytest.mark.parametrize("form", QUANTISED)
def test_logits(form: str, folders) -> None:
    """Logits are in the derived bound of the dequantized network in float64, so codes, scales and biases are
    read correctly.
    """
    port, wanted = mlx_port.DiaPipeline.load(folders(form)).engine.network, FORMS[form]["quantization"]
    for name, layer in port.named_modules():
        if isinstance(layer, nn.Linear | nn.QuantizedLinear):
            assert isinstance(layer, nn.QuantizedLinear), name
            assert (layer.mode, layer.group_size, layer.bits) == (wanted.mode, wanted.group_size, wanted.bits)
    config = port.config
    shape = 2, 11, config.decoder_config.num_channels
    ids = np.random.default_rng(1).integers(0, config.bos_token_id + 1, shape).astype(np.int32)
    networks = {
        PORT: port,
        YARDSTICK: torch_ref.DiaPipeline.load(folders(form)).engine.network,
        ORACLE: torch_ref.DiaPipeline.load(folders(form), dtype="float64").engine.network,
    }

    def run(side: Side) -> np.ndarray:
        network = networks[side]
        source = network.read([side.array(tokenize(TEXT))], network.encode_empty())
        return side.numpy(network(side.array(ids), network.new_cache(), source))

    assert_within(run(PORT), run(YARDSTICK), run(ORACLE), form)


def test_eight_bits_speak_alike(folders) -> None:
    """Sampled with the same numbers, both sides give equal codes, as without quantization."""
    codes = [
        load(folders("8-bit affine")).generate_codes([TEXT], seed=3, max_frames=20)[0]
        for load in (mlx_port.DiaPipeline.load, torch_ref.DiaPipeline.load)
    ]
    assert codes[0].shape == (8, 20)
    np.testing.assert_array_equal(codes[0], codes[1])

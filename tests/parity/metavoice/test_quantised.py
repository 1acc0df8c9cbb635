"""MetaVoice's first stage with 8 and 4 bits, in MLX's format and the original's.

PyTorch dequantizes the numbers that MLX multiplies directly.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlx import nn

import mlx_port.loading
import torch_ref.loading
from converters.convert import convert
from converters.published import open_published
from converters.rules.dequantize import Quantization
from converters.rules.original_quant import MODES, quantization_of
from tests.sides import Side
from tests.tiny.metavoice_lm import LanguageSide
from tests.tiny.published_models import FIRST
from tests.tolerance import assert_within
from tts_core.metavoice.config import is_quantisable
from tts_core.metavoice.rows import MetaVoiceJoining
from tts_core.metavoice.sampling import FirstStageSampling
from tts_core.nn.noise import HostNoise

pytestmark = [pytest.mark.skipif(not FIRST.is_file(), reason=f"{FIRST} is missing"), pytest.mark.rest]
GROUP = 32  # divides the sizes of small sets
NAMES = ("mlx", "torch", "float64")
FORMS = {f"{bits} bits": Quantization("affine", GROUP, bits) for bits in (8, 4)}
FORMS |= {mode: quantization_of(mode, GROUP) for mode in MODES}
Folder = Callable[[str], Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Form → a converted folder."""

    @cache
    def make(form: str) -> Path:
        place = tmp_path_factory.mktemp("quantised") / "made"
        published = open_published([FIRST], parts=["metavoice"])
        convert(published, place, dtype="float32", quantization=FORMS[form])
        return place

    return make


@cache
def first_stage(folder: Path, name: str) -> Any:
    if name == "mlx":
        return mlx_port.loading.open_networks(folder, kinds=["metavoice"])["metavoice"]
    dtype = "float64" if name == "float64" else "float32"
    return torch_ref.loading.open_networks(folder, kinds=["metavoice"], device="cpu", dtype=dtype)[
        "metavoice"
    ]


@pytest.mark.parametrize("form", FORMS)
def test_the_layers_linears_are_quantised_and_nothing_else(folder: Folder, form: str) -> None:
    for name, module in first_stage(folder(form), "mlx").named_modules():
        if isinstance(module, nn.Linear | nn.QuantizedLinear | nn.Embedding | nn.QuantizedEmbedding):
            assert isinstance(module, nn.QuantizedLinear) == is_quantisable(f"{name}.weight"), name


@pytest.mark.parametrize("form", FORMS)
def test_logits(folder: Folder, form: str) -> None:
    """In the derived bound of the dequantized network in float64: all codes, scales and biases are right."""
    random = np.random.default_rng(1)
    networks = {name: first_stage(folder(form), name) for name in NAMES}
    config = networks["mlx"].config
    ids = random.integers(0, config.vocab_size, (2, 30)).astype(np.int32)
    embeddings = random.normal(0, 0.2, (2, config.speaker_embedding_size)).astype(np.float32)

    def run(name: str) -> np.ndarray:
        side = Side(name)
        network = networks[name]
        with side.inference():
            heard = network.speakers(side.array(embeddings))
            return side.numpy(network(side.array(ids), heard, network.new_cache(30)))

    own, known, truth = map(run, NAMES)
    assert_within(own, known, truth, form)


@pytest.mark.parametrize("form", ["8 bits", "int8", "int4"])
def test_both_sides_say_the_same(folder: Folder, form: str) -> None:
    """Sampled with the same numbers, both sides give equal ids."""
    made = []
    for name in ("mlx", "torch"):
        network = first_stage(folder(form), name)
        config = network.config
        vector = np.random.default_rng(2).normal(0, 0.2, config.speaker_embedding_size).astype(np.float32)
        ids = np.array([2060, config.vocab_size - 1], np.int32)
        text = MetaVoiceJoining(ids, vector, FirstStageSampling(), HostNoise(3))
        made += LanguageSide(name).speak(network, [text], [30], end_of_text=config.vocab_size - 1)
    np.testing.assert_array_equal(made[0], made[1])
    assert len(made[0]) > 10

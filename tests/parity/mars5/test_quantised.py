"""MARS5's networks with 8 and 4 bits: PyTorch dequantizes the numbers that MLX multiplies directly."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlx import nn
from safetensors.numpy import load_file, save_file

import mlx_port.loading
import torch_ref.loading
from converters.convert import convert
from converters.published import open_published
from converters.rules.dequantize import Quantization
from tests.sides import ORACLE, PORT, YARDSTICK, Side
from tests.tiny import mars5_nar as mars5_nar_tiny
from tests.tiny.published_models import AR
from tests.tolerance import assert_within
from tts_core import models
from tts_core.mars5.config import is_norm, residual_transformer_parameter_shapes
from tts_core.mars5.diffusion import Diffusion, first_noise, make_cells
from tts_core.mars5.spec import MARS5_AR, MARS5_NAR
from tts_core.memory.weights import weight_bytes
from tts_core.nn.noise import HostNoise

pytestmark = pytest.mark.rest

GROUP, FRAMES, TIMESTEPS = 32, 6, 5
NAR = replace(
    mars5_nar_tiny.config(),
    hidden_size=64,
    intermediate_size=96,
    speaker_heads=4,
    n_codebooks=4,
    n_output_codebooks=4,
)
PARTS = ("mars5", "mars5_nar")
Folder = Callable[[str, int | None], Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Kind of part and bits → a converted folder. The AR is that of the golden set, the NAR random."""
    place = tmp_path_factory.mktemp("quantised")
    random, held = np.random.default_rng(0), {}
    for name, shape in residual_transformer_parameter_shapes(NAR).items():
        value = random.normal(0, 0.6 if "emb.weight" in name else shape[-1] ** -0.5, shape)
        norm = is_norm(name) and name.endswith("weight")
        held[name.replace("in_proj.", "in_proj_")] = (1 + 0.3 * value if norm else value).astype(np.float32)
    save_file(held, place / "nar.safetensors")
    (place / "nar.json").write_text(json.dumps({"n_heads": NAR.num_attention_heads, "spk_n_heads": 4}))

    @cache
    def make(kind: str, bits: int | None) -> Path:
        made = place / f"{kind}_{bits}"
        published = open_published([AR if kind == "mars5" else place / "nar.safetensors"], parts=[kind])
        how = None if bits is None else Quantization("affine", GROUP, bits)
        convert(published, made, dtype="float32", quantization=how)
        return made

    return make


@cache
def opened(folder: Path, kind: str, side: Side) -> Any:
    if side is PORT:
        return mlx_port.loading.open_networks(folder, kinds=[kind])[kind]
    dtype = "float64" if side is ORACLE else "float32"
    return torch_ref.loading.open_networks(folder, kinds=[kind], device="cpu", dtype=dtype)[kind]


def logits(folder: Path, kind: str, side: Side) -> np.ndarray:
    network, random = opened(folder, kind, side), np.random.default_rng(1)
    config = network.config
    reference = random.integers(0, config.codebook_rows - 1, (1, 9, config.n_codebooks))
    heard = network.speaker(side.array(reference))
    if kind == "mars5":
        rows = network.rows(heard, side.array(random.integers(0, config.vocab_size, (1, 12))))
        rotation = network.positions(13)(0, 13)
        return side.numpy(network(rows, rotation, network.new_cache(13)))
    both = side.array(np.concatenate([side.numpy(heard), side.numpy(network.no_speaker())]))
    text = random.integers(0, config.text_rows, (1, 7))
    source = network.read(side.array(text), both, frames=FRAMES, timesteps=TIMESTEPS)
    codes = random.integers(0, config.n_classes, (1, FRAMES, config.n_codebooks))
    return side.numpy(network(side.array(codes), source, side.array(np.array([2]))))


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("kind", PARTS)
def test_logits(folder: Folder, kind: str, bits: int) -> None:
    """In the derived bound of the dequantized network in float64: all codes, scales and biases are right."""
    own, known, truth = (logits(folder(kind, bits), kind, side) for side in (PORT, YARDSTICK, ORACLE))
    assert_within(own, known, truth, f"{kind}, {bits} bits")


@pytest.mark.parametrize("kind", PARTS)
def test_what_the_bits_cost(folder: Folder, kind: str) -> None:
    """A weight's error is a step / sqrt(12): at most 2 % in logits with 8 bits, 17 times that with 4 bits."""
    exact = logits(folder(kind, None), kind, ORACLE)
    off = {bits: _rms(logits(folder(kind, bits), kind, ORACLE) - exact) / _rms(exact) for bits in (8, 4)}
    assert 1e-4 < off[8] < 0.02
    assert 10 < off[4] / off[8] < 25


def _rms(x: np.ndarray) -> float:
    return float(np.sqrt((x**2).mean()))


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("kind", PARTS)
def test_the_large_linears_are_quantised_and_nothing_else(folder: Folder, kind: str, bits: int) -> None:
    """In the network, in the files, and in config.json and conversion.json."""
    network, place, count = opened(folder(kind, bits), kind, PORT), folder(kind, bits), 0
    shapes = models.network(kind).parameter_shapes(network.config)
    for name, module in network.named_modules():
        if isinstance(module, nn.Linear | nn.QuantizedLinear | nn.Embedding | nn.QuantizedEmbedding):
            weight = f"{name}.weight"
            large = models.network(kind).is_large(weight) and shapes[weight][-1] % GROUP == 0
            assert isinstance(module, nn.QuantizedLinear) == large, name
            count += large
    where = place / models.network(kind).folder
    part = json.loads((place / "conversion.json").read_text())["parts"][kind]
    assert part["quantized_layers"] == count
    names = set(load_file(where / "model.safetensors"))
    assert sum(name.endswith(".scales") for name in names) == count
    said = json.loads((where / "config.json").read_text())["quantization"]
    assert (said["bits"], said["group_size"], said["mode"]) == (bits, GROUP, "affine")
    if kind == "mars5_nar":
        at = "tfm.decoder.layers.1.multihead_attn.in_proj"
        assert {f"{at}.{part}" for part in ("weight", "scales", "biases", "bias")} <= names
        assert count == 2 * NAR.encoder_layers + 4 * NAR.decoder_layers + 3 * (
            NAR.encoder_layers + NAR.decoder_layers
        )


@pytest.mark.parametrize("bits", [8, 4])
def test_a_quantised_diffusion_draws_alike_on_both_sides(folder: Folder, bits: int) -> None:
    random, noise = np.random.default_rng(2), HostNoise(4)
    reference = random.integers(0, NAR.n_classes, (NAR.n_codebooks, 5)).astype(np.int32)
    start = first_noise(noise, NAR.n_codebooks, FRAMES, NAR.n_classes)
    cells = make_cells(start[0], start, reference, n_classes=NAR.n_classes)
    settings, text = Diffusion(timesteps=TIMESTEPS), np.arange(7, dtype=np.int32)
    made = []
    for side in (YARDSTICK, PORT):
        diffusion = side.module("mars5.reverse").ReverseDiffusion(
            opened(folder("mars5_nar", bits), "mars5_nar", side)
        )
        made.append(diffusion.run(text, reference, cells, settings, noise=noise))
    np.testing.assert_array_equal(made[0], made[1])


def test_full_size() -> None:
    """Sizes of both networks' weights in docs/use/mars5.md: GB in bfloat16, with 8 and with 4 bits."""
    sizes = {}
    for bits in (16, 8, 4):
        how = None if bits == 16 else {"group_size": 64, "bits": bits, "mode": "affine"}
        both = {"mars5": MARS5_AR, "mars5_nar": MARS5_NAR}.items()
        sizes[bits] = [round(weight_bytes(kind, config, "bfloat16", how) / 1e9, 2) for kind, config in both]
    assert sizes == {16: [1.53, 0.9], 8: [0.89, 0.54], 4: [0.56, 0.34]}

"""MARS5, MetaVoice and Qwen3-TTS with 8 and 4 bits: PyTorch dequantizes the numbers that MLX multiplies.

The embedded voice of Dia in every form: tests/parity/dia/test_quantised.py.
"""

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
from converters.rules.original_quant import MODES, quantization_of
from tests.golden.qwen3_bench import ModelSide
from tests.golden.qwen3_checks import read_row
from tests.parity.qwen3.test_networks import codes, row
from tests.sides import ORACLE, PORT, YARDSTICK, Side
from tests.tiny.mars5 import to_end
from tests.tiny.metavoice_lm import LanguageSide
from tests.tiny.networks import nar_config
from tests.tiny.published_models import AR, FIRST
from tests.tiny.qwen3 import write_published as write_qwen3
from tests.tolerance import assert_within
from tts_core import models
from tts_core.mars5.config import is_norm, residual_transformer_parameter_shapes
from tts_core.mars5.diffusion import Diffusion, first_noise, make_cells
from tts_core.mars5.model import MARS5_AR, MARS5_NAR
from tts_core.memory.weights import weight_bytes
from tts_core.metavoice.inputs import FirstStageSampling, MetaVoiceInputs
from tts_core.nn.noise import HostNoise

pytestmark = [pytest.mark.skipif(not FIRST.is_file(), reason=f"{FIRST} is missing"), pytest.mark.rest]

GROUP, FRAMES, TIMESTEPS = 32, 6, 5  # the group divides the sizes of small sets
NAR = replace(
    nar_config(),
    hidden_size=64,
    intermediate_size=96,
    speaker_heads=4,
    n_codebooks=4,
    n_output_codebooks=4,
)
FORMS = {"plain": None, **{f"{bits} bits": Quantization("affine", GROUP, bits) for bits in (8, 4)}}
FORMS |= {mode: quantization_of(mode, GROUP) for mode in MODES}  # of MetaVoice's own program
CASES = [(kind, form) for kind in ("mars5", "mars5_nar", "metavoice") for form in ("8 bits", "4 bits")]
CASES += [("metavoice", mode) for mode in MODES] + [
    ("qwen3, base", "8 bits"),
    ("qwen3, custom_voice", "4 bits"),
]
cases = pytest.mark.parametrize(("name", "form"), CASES)
Folder = Callable[[str, str], Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Kind of network and form → a converted folder. MARS5's diffusion and Qwen3-TTS are random."""
    place = tmp_path_factory.mktemp("quantised")

    @cache
    def published(name: str) -> Path:
        kind, _, mode = name.partition(", ")
        if mode:
            return write_qwen3(place / mode, mode)
        return {"mars5": AR, "metavoice": FIRST}[kind] if kind != "mars5_nar" else write_nar(place)

    @cache
    def make(name: str, form: str) -> Path:
        opened, made = open_published(published(name), parts=[kind_of(name)]), place / f"{name} {form}"
        convert(opened, made, dtype="float32", quantization=FORMS[form])
        return made

    return make


def write_nar(place: Path) -> Path:
    random, held = np.random.default_rng(0), {}
    for name, shape in residual_transformer_parameter_shapes(NAR).items():
        value = random.normal(0, 0.6 if "emb.weight" in name else shape[-1] ** -0.5, shape)
        norm = is_norm(name) and name.endswith("weight")
        held[name.replace("in_proj.", "in_proj_")] = (1 + 0.3 * value if norm else value).astype(np.float32)
    save_file(held, place / "nar.safetensors")
    (place / "nar.json").write_text(json.dumps({"n_heads": NAR.num_attention_heads, "spk_n_heads": 4}))
    return place / "nar.safetensors"


def kind_of(name: str) -> str:
    return name.partition(",")[0]


@cache
def opened(folder: Path, name: str, side: Side) -> Any:
    kinds = [kind_of(name)]
    if side is PORT:
        return mlx_port.loading.open_networks(folder, kinds=kinds)[kinds[0]]
    dtype = "float64" if side is ORACLE else "float32"
    return torch_ref.loading.open_networks(folder, kinds=kinds, device="cpu", dtype=dtype)[kinds[0]]


def numbers(folder: Path, name: str, side: Side) -> dict[str, np.ndarray]:
    """Logits, and of Qwen3-TTS what every layer gives."""
    network, random = opened(folder, name, side), np.random.default_rng(1)
    config, array = network.config, side.array
    if name.startswith("qwen3"):
        mode = name.partition(", ")[2]
        return read_row(ModelSide(side.kind, network), row(mode, streamed=False), codes(mode, 4))
    if name == "metavoice":
        ids = random.integers(0, config.vocab_size, (2, 30)).astype(np.int32)
        heard = network.speakers(
            array(random.normal(0, 0.2, (2, config.speaker_embedding_size)).astype(np.float32))
        )
        return {"logits": side.numpy(network(array(ids), heard, network.new_cache(30)))}
    reference = random.integers(0, config.codebook_rows - 1, (1, 9, config.n_codebooks))
    heard = network.speaker(array(reference))
    if name == "mars5":
        rows = network.rows(heard, array(random.integers(0, config.vocab_size, (1, 12))))
        return {"logits": side.numpy(network(rows, network.positions(13)(0, 13), network.new_cache(13)))}
    both = array(np.concatenate([side.numpy(heard), side.numpy(network.no_speaker())]))
    text = random.integers(0, config.text_rows, (1, 7))
    source = network.read(array(text), both, frames=FRAMES, timesteps=TIMESTEPS)
    given = random.integers(0, config.n_classes, (1, FRAMES, config.n_codebooks))
    return {"logits": side.numpy(network(array(given), source, array(np.array([2]))))}


@cases
def test_numbers(folder: Folder, name: str, form: str) -> None:
    """In the derived bound of the dequantized network in float64: all codes, scales and biases are right."""
    own, known, truth = (numbers(folder(name, form), name, side) for side in (PORT, YARDSTICK, ORACLE))
    for at in truth:
        assert_within(own[at], known[at], truth[at], f"{name}, {form}: {at}")


@cases
def test_the_large_linears_are_quantised_and_nothing_else(folder: Folder, name: str, form: str) -> None:
    """In the network, in the files, and in config.json and conversion.json."""
    network, place, kind = opened(folder(name, form), name, PORT), folder(name, form), kind_of(name)
    count, known = 0, models.network(kind)
    shapes = known.parameter_shapes(network.config)
    for at, module in network.named_modules():
        if isinstance(module, nn.Linear | nn.QuantizedLinear | nn.Embedding | nn.QuantizedEmbedding):
            weight = f"{at}.weight"
            large = known.is_large(weight) and shapes[weight][-1] % GROUP == 0
            assert isinstance(module, nn.QuantizedLinear) == large, at
            count += large
    part = json.loads((place / "conversion.json").read_text())["parts"][kind]
    assert part["quantized_layers"] == count > 0
    names = set(load_file(place / known.folder / "model.safetensors"))
    assert sum(each.endswith(".scales") for each in names) == count
    said, how = json.loads((place / known.folder / "config.json").read_text())["quantization"], FORMS[form]
    assert how is not None
    assert (said["bits"], said["group_size"], said["mode"]) == (how.bits, GROUP, "affine")
    if name == "mars5_nar":
        at = "tfm.decoder.layers.1.multihead_attn.in_proj"
        assert {f"{at}.{part}" for part in ("weight", "scales", "biases", "bias")} <= names
        layers = NAR.encoder_layers + NAR.decoder_layers
        assert count == 2 * NAR.encoder_layers + 4 * NAR.decoder_layers + 3 * layers


@pytest.mark.parametrize("name", ["mars5", "mars5_nar"])
def test_what_the_bits_cost(folder: Folder, name: str) -> None:
    """A weight's error is a step / sqrt(12): at most 2 % in logits with 8 bits, 17 times that with 4 bits."""
    exact, *narrow = (numbers(folder(name, form), name, ORACLE)["logits"] for form in list(FORMS)[:3])
    eight, four = (np.sqrt(np.square(each - exact).mean() / np.square(exact).mean()) for each in narrow)
    assert 1e-4 < eight < 0.02
    assert 10 < four / eight < 25


@pytest.mark.parametrize("form", ["8 bits", "4 bits"])
def test_a_quantised_diffusion_draws_alike_on_both_sides(folder: Folder, form: str) -> None:
    random, noise = np.random.default_rng(2), HostNoise(4)
    reference = random.integers(0, NAR.n_classes, (NAR.n_codebooks, 5)).astype(np.int32)
    start = first_noise(noise, NAR.n_codebooks, FRAMES, NAR.n_classes)
    cells = make_cells(start[0], start, reference, n_classes=NAR.n_classes)
    settings, text = Diffusion(timesteps=TIMESTEPS), np.arange(7, dtype=np.int32)
    made = []
    for side in (YARDSTICK, PORT):
        network = opened(folder("mars5_nar", form), "mars5_nar", side)
        diffusion = side.module("mars5.reverse").ReverseDiffusion(network)
        made.append(to_end(diffusion.begin(text, reference, cells, settings, noise=noise)))
    np.testing.assert_array_equal(made[0], made[1])


@pytest.mark.parametrize("form", ["8 bits", *MODES])
def test_a_quantised_first_stage_draws_alike_on_both_sides(folder: Folder, form: str) -> None:
    made = []
    for side in (PORT, YARDSTICK):
        network = opened(folder("metavoice", form), "metavoice", side)
        config = network.config
        vector = np.random.default_rng(2).normal(0, 0.2, config.speaker_embedding_size).astype(np.float32)
        ids = np.array([2060, config.vocab_size - 1], np.int32)
        text = MetaVoiceInputs(ids, vector, FirstStageSampling(), HostNoise(3))
        made += LanguageSide(side.kind).speak(network, [text], [30], end_of_text=config.vocab_size - 1)
    np.testing.assert_array_equal(made[0], made[1])
    assert len(made[0]) > 10


def test_full_size() -> None:
    """Sizes of both networks' weights in docs/use/mars5.md: GB in bfloat16, with 8 and with 4 bits."""
    sizes = {}
    for bits in (16, 8, 4):
        how = None if bits == 16 else {"group_size": 64, "bits": bits, "mode": "affine"}
        both = {"mars5": MARS5_AR, "mars5_nar": MARS5_NAR}.items()
        sizes[bits] = [round(weight_bytes(kind, config, "bfloat16", how) / 1e9, 2) for kind, config in both]
    assert sizes == {16: [1.53, 0.9], 8: [0.89, 0.54], 4: [0.56, 0.34]}

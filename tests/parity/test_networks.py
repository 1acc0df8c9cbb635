"""Every network on both sides: each module on the oracle's values, in the derived bound.

The runs are those of `mlx-port verify`, of small networks; faults that it must find: verify/test_networks.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from mlx import nn

from mlx_port import watch
from mlx_port.commands.verify.report import Report
from mlx_port.commands.verify.run import Comparison
from tests.parity.codecs.kinds import DAC, ENCODEC, MIMI, QWEN3, VOCOS, Config, configs, new_weights
from tests.parity.verify.origins import inputs
from tests.sides import ORACLE, PORT, YARDSTICK
from tests.tiny.dia2 import GOLDEN
from tests.tiny.inputs import normal
from tests.tiny.networks import (
    KINDS,
    Weights,
    dia2_config,
    dia_config,
    first_stage_config,
    mimi_config,
    other_config,
    second_stage_config,
    tiny,
)
from torch_ref import watch as torch_watch
from tts_core.codecs import probes as codecs
from tts_core.codecs.vocos import VocosConfig
from tts_core.dia2.config import Dia2Config
from tts_core.dia2.tokenizer import FILE
from tts_core.nn.probe import Framework, InputSources, Probe, probes
from tts_core.qwen3.config import MODES

PUBLISHED = ["dia, v_0626_hf", "dia, v_v01", "dia2, v_main", "dia2, v_text", "mars5", "metavoice"]
PUBLISHED += [f"qwen3, {mode}" for mode in MODES]
# rows of the decoders and seconds of sound: the fewest; over the edge of a chunk of keys and of windows
SIZES = {"dia": [(2, 0.01), (128, 0.4)], "mars5": [(2, 0.04), (90, 0.2)], "metavoice": [(2, 0.04), (50, 0.2)]}
SIZES |= {"dia2": [(2, 0.1), (50, 1.3)], "qwen3": [(3, 0.1), (60, 1.3)]}
LATE = 2050  # rows, eight chunks of keys: there a float32 angle has an error of 1e-4


class Part(Weights[Any]):
    """A network's random weights as a converted part, for Comparison."""

    dtype, quantization, moves = "float32", None, dict[str, Any]()


def loaded(probe: Probe, part: Any, dtype: str) -> tuple[Any, Framework]:
    return (ORACLE if dtype == "float64" else YARDSTICK).network(probe.kind, part), torch_watch.framework(
        dtype
    )


def port(probe: Probe, part: Any, dtype: str) -> tuple[Any, Framework]:
    return PORT.network(probe.kind, part), watch.framework(dtype)


def assert_parity(probe: Probe, part: Any, reference: Any = loaded, other: Any = port) -> None:
    """Compare every module that the probe watches, and the results of the whole network."""
    report = Report("a", "b", "float32", None, 0, 0, 0)
    Comparison(probe, part, part, reference, other, report, lambda _: None).run()
    assert report.rows
    assert report.passed, (probe.name, report.failures())


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("size", [0, 1], ids=["least", "long"])
def test_published(name: str, size: int, origin: Any) -> None:
    files = origin(name)
    published = files.open()
    for probe in probes(files.model, inputs(published, *SIZES[files.model][size], 5 + size)):
        part = published.parts[probe.kind]
        assert_parity(probe, part, torch_watch.unloaded, watch.unloaded)


def sources(kind: str, config: Any, seconds: float) -> InputSources:
    return InputSources(cast(Any, {kind: config}), {}, 2, seconds, 1)


LISTED = {"dac": codecs.dac_probes, "encodec": codecs.encodec_probes, "mimi": codecs.mimi_probes}
LISTED |= {"qwen3_codec": codecs.qwen3_codec_probes}


@pytest.mark.parametrize("frames", [2, 5, 26])
@configs(DAC, ENCODEC, MIMI, QWEN3)
def test_codecs_of_any_strides(config: Config, frames: int) -> None:
    """frames: steps below, at and above the windows of transformers."""
    kind = KINDS[type(config)]
    for probe in LISTED[kind](sources(kind, config, frames / config.frame_rate)):
        assert_parity(probe, Part(config, new_weights(config).tensors))


@pytest.mark.parametrize("frames", [2, 17])
@pytest.mark.parametrize("bandwidth", [0, 1, 2])
@configs(VOCOS)
def test_vocoders_of_any_windows(config: VocosConfig, bandwidth: int, frames: int) -> None:
    probe = codecs.vocos_probe(sources("vocos", config, frames / config.frame_rate), bandwidth)
    assert_parity(probe, Part(config, new_weights(config).tensors))


@pytest.mark.parametrize("cross_rope", [False, True], ids=["0626", "v0.1"])
@pytest.mark.parametrize("texts", [(13, 13), (90, 1, 37), (9,)], ids=["equal", "unequal", "one"])
@pytest.mark.parametrize("start", [0, LATE])
def test_texts_together_and_late(texts: tuple[int, ...], start: int, *, cross_rope: bool) -> None:
    """Dia on texts of any lengths: rows over the edge of a chunk of keys, and after LATE rows."""
    config = dia_config(cross_rope=cross_rope)
    decoder, random = config.decoder_config, np.random.default_rng(5)
    ids = [random.integers(1, 256, length).astype(np.int32) for length in texts]
    batch = 2 * len(texts)
    tokens = random.integers(0, config.bos_token_id + 1, (batch, 257, decoder.num_channels)).astype(np.int32)
    shape = batch, decoder.num_key_value_heads, start, decoder.head_dim

    def run(network: Any, framework: Framework) -> Mapping[str, Any]:
        source, cache = (
            network.read(list(map(framework.array, ids)), network.encode_empty()),
            network.new_cache(),
        )
        for place, layer in enumerate(cache if start else ()):
            layer.extend(*(framework.array(normal(seed + place, *shape)) for seed in (20, 30)))
        logits = [network(framework.array(tokens[:, :254]), cache, source)]
        logits.append(network(framework.array(tokens[:, 254:256]), cache, source))
        last = network.next_logits(framework.array(tokens[:, 256:]), cache, source)
        return {
            **{"keys": source.keys, "values": source.values, "unconditional": source.unconditional},
            **{"last": last, "logits": logits},
        }

    watched = r"model\.(en|de)coder\.(embeddings|layers\.\d+(\.\w+)?|norm)|logits_dense"
    probe = Probe("dia", "dia", {}, run, watched)
    assert_parity(probe, Part(config, tiny(config, seed=1).tensors))


@pytest.mark.parametrize("config", [dia2_config(), other_config()], ids=["gaps", "plain"])
def test_dia2_of_any_schedule(config: Dia2Config) -> None:
    documents = {"dia2": {FILE: (GOLDEN / "tokenizer" / FILE).read_text("utf-8")}}
    given = InputSources({"dia2": config, "mimi": mimi_config()}, documents, 20, 0.1, 1)
    for probe in probes("dia2", given)[2:]:
        assert_parity(probe, Part(config, tiny(config, seed=4).tensors))


@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
def test_metavoice_with_and_without_biases(*, bias: bool) -> None:
    """First stage in three calls over every position, second stage with a speaker and without."""
    random = np.random.default_rng(6)
    first, second = first_stage_config(bias=bias), second_stage_config(bias=bias)
    ids, voices = random.integers(0, first.vocab_size, (3, 60)).astype(np.int32), normal(5, 3, 10)
    codes = random.integers(0, 1025, (2, 2, 40)).astype(np.int32)

    def speak(network: Any, framework: Framework) -> Mapping[str, Any]:
        heard, cache = network.speakers(framework.array(voices)), network.new_cache(60)
        cuts = [(0, 41), (41, 42), (42, 60)]
        return {"logits": [network(framework.array(ids[:, a:b]), heard, cache) for a, b in cuts]}

    def fill(network: Any, framework: Framework) -> Mapping[str, Any]:
        heard = framework.array(voices[:2])
        return {"logits": [network(framework.array(codes), each) for each in (heard, None)]}

    watched = r"transformer\.(wtes\.\d+|h\.\d+(\.\w+)?|ln_f)|lm_heads\.\d+"
    one = Probe("metavoice", "metavoice", {}, speak, watched)
    assert_parity(one, Part(first, tiny(first).tensors))
    other = Probe("second_stage", "metavoice_second_stage", {}, fill, watched)
    assert_parity(other, Part(second, tiny(second, 1).tensors))


@pytest.mark.parametrize("name", PUBLISHED)
def test_both_sides_have_the_same_constants(name: str, origin: Any) -> None:
    """Epsilons, windows, strides: numbers that modules hold, which inputs of ordinary size may not show."""
    files, compared = origin(name), 0
    published = files.open()
    for probe in probes(files.model, inputs(published, 12, files.seconds, 0)):
        part = published.parts[probe.kind]
        torch, mlx = (each.unloaded(probe, part, "float32")[0] for each in (torch_watch, watch))
        ours = {path: module for path, module in mlx.named_modules() if isinstance(module, nn.Module)}
        for path, module in torch.named_modules():
            for key, value in vars(module).items():
                own = getattr(ours.get(path), key, None)
                if key[0] != "_" and key != "training" and isinstance(value, int | float) and own is not None:
                    assert own == value, (path, key)
                    compared += 1
    assert compared > 20


def test_other_constants_are_seen() -> None:
    """The test above can fail: eps ten times as large, in norms of ordinary inputs."""
    config = dia_config()
    other = replace(config, encoder_config=replace(config.encoder_config, norm_eps=1e-4))
    tensors = tiny(config, seed=1).tensors
    ids = np.arange(1, 30, dtype=np.int32)[None]

    def run(network: Any, framework: Framework) -> Mapping[str, Any]:
        return {"logits": [network.model.encoder(framework.array(ids))]}

    def changed(probe: Probe, part: Any, dtype: str) -> tuple[Any, Framework]:
        return port(probe, Part(other, tensors), dtype)

    probe = Probe("dia", "dia", {}, run, r"model\.encoder\.layers\.\d+\.\w+")
    with pytest.raises(AssertionError, match="encoder"):
        assert_parity(probe, Part(config, tensors), other=changed)

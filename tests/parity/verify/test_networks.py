"""Faults in MLX's weights of every network: a flipped value, two swapped rows, two swapped layers.

Each is found in the modules of the fault, and in no other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pytest

from converters.published import ModelPart
from mlx_port import watch
from mlx_port.commands.verify.measure import Choices, LayerRow
from mlx_port.commands.verify.report import Report
from mlx_port.commands.verify.run import Comparison
from tests.parity.verify.origins import inputs
from tests.tiny.published_models import AR, FIRST
from torch_ref import watch as torch_watch
from tts_core.nn.probe import Framework, Probe, probes

pytestmark = pytest.mark.skipif(not (AR.is_file() and FIRST.is_file()), reason=f"{AR} or {FIRST} is missing")
Change = Callable[[np.ndarray], object]


@dataclass(frozen=True)
class Faults:
    """Where a network of a model is changed. layers: two with tensors of the same shapes."""

    model: str
    run: str
    flipped: str
    rows: str
    layers: tuple[str, str]


DIA, DIA2, QWEN3 = "dia, v_0626_hf", "dia2, v_main", "qwen3, base"
DECODER, ENCODER = "model.decoder.layers", "model.encoder.layers"
VQ = "quantizer.acoustic_residual_vector_quantizer.layers"
NETWORKS = {
    "dia": Faults(
        DIA, "dia", f"{DECODER}.1.mlp.down_proj.weight", f"{ENCODER}.0.self_attention.k_proj.weight",
        (f"{DECODER}.0", f"{DECODER}.1"),
    ),
    "dac encoder": Faults(
        DIA, "codec encoder", "encoder.block.1.res_unit1.conv1.weight", "encoder.conv2.weight",
        ("quantizer.quantizers.1", "quantizer.quantizers.2"),
    ),
    "dac decoder": Faults(
        DIA, "codec decoder", "decoder.conv1.weight", "decoder.block.2.res_unit2.conv1.weight",
        ("decoder.block.0.res_unit1", "decoder.block.0.res_unit2"),
    ),
    "dia2": Faults(
        DIA2, "dia2 transformer", "transformer.layers.0.attn.o_proj.weight", "transformer.cb0_head.weight",
        ("transformer.layers.0", "transformer.layers.1"),
    ),
    "dia2 depformer": Faults(
        DIA2, "dia2 depformer", "depformer.layers.0.self_attention.in_proj.1.weight",
        "depformer.logits.1.weight", ("depformer.audio_embeds.1", "depformer.audio_embeds.2"),
    ),
    "mimi encoder": Faults(
        DIA2, "codec encoder", "downsample.conv.weight", "encoder.layers.0.conv.weight",
        (f"{VQ}.0", f"{VQ}.1"),
    ),
    "mimi decoder": Faults(
        DIA2, "codec decoder", "upsample.conv.weight", "decoder.layers.0.conv.weight",
        ("decoder_transformer.layers.0", "decoder_transformer.layers.1"),
    ),
    "mars5": Faults(
        "mars5", "mars5", "ar.layers.1.feed_forward.w2.weight", "ar.output.weight",
        ("ar.layers.0", "ar.layers.1"),
    ),
    "mars5 nar": Faults(
        "mars5", "nar", "tfm.encoder.layers.1.linear2.weight",
        "tfm.decoder.layers.0.self_attn.in_proj.weight",
        ("residual_decoder.2", "residual_decoder.3"),
    ),
    "encodec encoder": Faults(
        "mars5", "codec encoder", "encoder.layers.3.conv.weight", "encoder.layers.15.conv.weight",
        ("quantizer.layers.0", "quantizer.layers.1"),
    ),
    "encodec decoder": Faults(
        "mars5", "codec decoder", "decoder.layers.3.conv.bias", "decoder.layers.1.lstm.weight_hh_l0",
        ("decoder.layers.1.lstm.weight_ih_l0", "decoder.layers.1.lstm.weight_ih_l1"),
    ),
    "vocos": Faults(
        "mars5", "vocoder", "head.out.bias", "backbone.embed.weight",
        ("backbone.convnext.0", "backbone.convnext.1"),
    ),
    "metavoice": Faults(
        "metavoice", "metavoice", "transformer.h.1.mlp.c_proj.weight", "transformer.h.0.attn.c_attn.weight",
        ("transformer.h.0", "transformer.h.1"),
    ),
    "metavoice second stage": Faults(
        "metavoice", "second_stage", "transformer.ln_f.weight", "lm_heads.2.weight",
        ("transformer.h.0", "transformer.h.1"),
    ),
    "metavoice speaker encoder": Faults(
        "metavoice", "speaker_encoder", "linear.weight", "linear.weight",
        ("lstm.weight_hh_l1", "lstm.weight_hh_l2"),
    ),
    "mbd": Faults(
        "metavoice", "mbd, band 1", "bands.1.unet.conv_codec.weight", "bands.1.unet.decoders.0.convtr.weight",
        ("bands.1.unet.encoders.1.res_blocks.0.conv1", "bands.1.unet.encoders.1.res_blocks.0.conv2"),
    ),
    "qwen3 talker": Faults(
        QWEN3, "talker", "talker.text_projection.linear_fc2.weight", "talker.codec_head.weight",
        ("talker.model.layers.0", "talker.model.layers.1"),
    ),
    "qwen3 predictor": Faults(
        QWEN3, "predictor", "talker.code_predictor.model.norm.weight",
        "talker.code_predictor.model.layers.0.self_attn.v_proj.weight",
        ("talker.code_predictor.lm_head.0", "talker.code_predictor.lm_head.1"),
    ),
    "qwen3 speaker encoder": Faults(
        QWEN3, "speaker", "speaker_encoder.blocks.0.conv.weight", "speaker_encoder.fc.weight",
        ("speaker_encoder.blocks.1.tdnn1", "speaker_encoder.blocks.1.tdnn2"),
    ),
    "qwen3_codec encoder": Faults(
        QWEN3, "codec encoder", "encoder.downsample.conv.weight", f"encoder.{VQ}.0.codebook.embed",
        ("encoder.encoder_transformer.layers.0", "encoder.encoder_transformer.layers.1"),
    ),
    "qwen3_codec decoder": Faults(
        QWEN3, "codec decoder", "decoder.pre_conv.conv.weight", "decoder.upsample.0.1.pwconv1.weight",
        ("decoder.pre_transformer.layers.0", "decoder.pre_transformer.layers.1"),
    ),
}  # fmt: skip


RESULTS = {"whole network", "argmax of the logits", "logits", "samples", "vector", "vectors", "estimate"}
RESULTS |= {"prompt", "hidden", "actions"}
AFTER = {"metavoice speaker encoder": ["linear"]}  # reads the state, of which nothing is replaced


@dataclass(frozen=True)
class Changed(ModelPart):
    """A part, some of whose tensors are changed, or read by the name of another one."""

    change: Mapping[str, Change] = field(default_factory=dict)
    other: Mapping[str, str] = field(default_factory=dict)

    def read(self, name: str) -> np.ndarray:
        values = super().read(self.other.get(name, name))
        if name in self.change:
            values = values.copy()
            self.change[name](values)
        return values


def flip(values: np.ndarray) -> None:
    """Change the sign of the largest value."""
    values.flat[np.abs(values).argmax()] *= -1


def swap(values: np.ndarray) -> None:
    values[[0, 1]] = values[[1, 0]]


def exchanged(names: Sequence[str], layers: tuple[str, str]) -> dict[str, str]:
    """Names of the tensors of two layers → of the other layer."""
    found = {}
    for own, other in (layers, layers[::-1]):
        found |= {
            name: other + name[len(own) :] for name in names if name == own or name.startswith(f"{own}.")
        }
    assert found
    assert set(found) == set(found.values())
    return found


@pytest.fixture(scope="module")
def faults_of(origin) -> Callable[..., tuple[list[str], Callable[..., Report]]]:
    """Compare one run of a model with changes in MLX's weights."""

    def prepare(model: str, run: str) -> tuple[list[str], Callable[..., Report]]:
        files = origin(model)
        published = files.open()
        listed = probes(files.model, inputs(published, files.rows, files.seconds, 0))
        [probe] = [one for one in listed if one.name == run]
        part = published.parts[probe.kind]

        def compare(change: Mapping[str, Change], other: Mapping[str, str]) -> Report:
            def port(probe: Probe, part: ModelPart, dtype: str) -> tuple[Any, Framework]:
                known = {each.name: getattr(part, each.name) for each in fields(part)}
                return watch.unloaded(probe, Changed(**known, change=change, other=other), dtype)

            report = Report("a", "b", "float32", None, files.rows, files.seconds, 0)
            Comparison(probe, part, part, torch_watch.unloaded, port, report, lambda _: None).run()
            return report

        return part.names(), compare

    return prepare


def beyond(report: Report) -> list[str]:
    """Names of modules that are beyond the bound."""
    failed: list[LayerRow | Choices] = [one for one in (*report.rows, *report.choices) if not one.passed]
    return [one.layer for one in failed if one.layer not in RESULTS]


@pytest.mark.parametrize("network", NETWORKS)
def test_each_fault_is_found_where_it_is(network, faults_of):
    faults = NETWORKS[network]
    names, compare = faults_of(faults.model, faults.run)
    whole = compare({}, {})
    assert whole.passed, whole.failures()
    for fault, change, other in (
        (faults.flipped, {faults.flipped: flip}, {}),
        (faults.rows, {faults.rows: swap}, {}),
        (faults.layers[0], {}, exchanged(names, faults.layers)),
    ):
        report = compare(change, other)
        assert not report.passed, (fault, [(r.layer, r.error, r.bound) for r in report.rows])
        damaged = [*change, *other]
        found = beyond(report)
        assert found, fault
        for layer in found:
            at = re.compile(rf"(model\.)?{re.escape(layer)}(\.|$)")
            near = any(at.match(tensor) or layer.startswith(tensor.rpartition(".")[0]) for tensor in damaged)
            assert near or layer in AFTER.get(network, []), (fault, layer)


@pytest.mark.parametrize(("network", "stages"), [("qwen3 predictor", 4), ("dia2 depformer", 4)])
def test_the_likeliest_code_of_every_stage_is_compared(network, stages, faults_of):
    _, compare = faults_of(NETWORKS[network].model, NETWORKS[network].run)
    [choices] = compare({}, {}).choices
    assert (choices.layer, choices.total) == ("argmax of the logits", 12 * stages)

"""`mlx-port verify` with other models than Dia: good conversions pass, damage of each kind is named."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from converters.rules.dequantize import Quantization
from mlx_port.commands import main as cli
from tests.parity.verify.origins import edit_tensor, failed, perturb, poison, swap_rows
from tests.tiny.published_models import AR, FIRST, edit, sources

pytestmark = [
    pytest.mark.skipif(not (AR.is_file() and FIRST.is_file()), reason=f"{AR} or {FIRST} is missing"),
    pytest.mark.rest,
    pytest.mark.usefixtures("verify_here"),
]
EIGHT_BITS = Quantization.of("affine", 32, 8)

LAST = {
    "mars5": ["codec decoder.layers.15", "vocoder head.out", "mars5 ar.output", "nar residual_decoder.7.1"],
    "metavoice": [
        *("codec encoder.layers.13", "vocoder backbone.convnext.1", "speaker_encoder lstm"),
        *("metavoice transformer.h.1", "second_stage lm_heads.5", "mbd, band 0 bands.0.unet.decoders.2"),
        *("mbd, band 1 bands.1.processor", "mbd, band 1 bands.1.unet.conv_codec"),
    ],
}


@pytest.mark.parametrize("model", LAST)
def test_a_faithful_conversion_passes(model, converted, verify, tmp_path):
    done = verify(model, converted(model), "--html", str(tmp_path / "report.html"))
    assert (done.code, done.err) == (0, "")
    assert "FAIL" not in done.out
    for row in LAST[model]:
        part = next(part for part in PARTS[model] if row.startswith(f"{part} "))
        name = re.escape(row.removeprefix(f"{part} "))
        table = done.out[done.out.index(f"\n{part}, float32 ") :].split("\n\n")[0]
        assert re.search(rf"^{name} .* ok$", table, re.MULTILINE), row
    for part in PARTS[model]:
        assert re.search(
            rf"^{part}: \d+ layers against the bound, nearest to it .*%: ok$", done.out, re.MULTILINE
        )
    assert re.search(r"^codec, 8 quantizers: (\d+) of \1 codes equal$", done.out, re.MULTILINE)
    assert re.search(r"^\w+, argmax of the logits \(float32\): (\d+) of \1 codes", done.out, re.MULTILINE)
    assert done.out.splitlines()[-1].startswith("PASS: ")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert page.count("<svg") == 2 * len(PARTS[model])  # a section for each part
    assert all(row.rpartition(" ")[2] in page for row in LAST[model])


PARTS = {
    "mars5": ["codec", "vocoder", "mars5", "nar"],
    "metavoice": [
        *("codec", "vocoder", "speaker_encoder", "metavoice", "second_stage"),
        *("mbd, band 0", "mbd, band 1"),
    ],
}


def double_row(row: int) -> Callable[[np.ndarray], None]:
    def change(tensor: np.ndarray) -> None:
        tensor[row] *= 2

    return change


@dataclass(frozen=True)
class Damage:
    """A change to a tensor of a part, and the row that names it. run: the part's name in the report."""

    part: str
    tensor: str
    change: Callable[[np.ndarray], object]
    row: str
    run: str = ""

    def __call__(self, folder: Path) -> None:
        edit_tensor(self.part, self.tensor, self.change)(folder)


DAMAGES = {
    "mars5, all parts": (
        Damage("", "ar.layers.1.attention.wo.weight", perturb, "ar.layers.1", "mars5"),
        Damage("nar", "tfm.decoder.layers.0.multihead_attn.in_proj.weight", perturb, "tfm.decoder.layers.0"),
        Damage("codec", "encoder.layers.13.lstm.weight_hh_l1", swap_rows, "encoder.layers.13"),
        Damage("vocoder", "backbone.convnext.1.gamma", perturb, "backbone.convnext.1"),
    ),
    "mars5, the vocoder's own row": (
        Damage("vocoder", "backbone.norm.scale.weight", double_row(1), "backbone.norm"),
    ),
    "metavoice, the vocoder's own row": (
        Damage("vocoder", "backbone.norm.scale.weight", double_row(2), "backbone.norm"),
    ),
    "mars5, one part": (Damage("", "ar.norm.weight", poison, "ar.norm", "mars5"),),
    "metavoice, one part": (
        Damage("second_stage", "transformer.h.1.attn.c_attn.weight", swap_rows, "transformer.h.1"),
    ),
    "metavoice, four parts": (
        Damage("", "transformer.h.0.mlp.swiglu.w3.weight", perturb, "transformer.h.0", "metavoice"),
        Damage("second_stage", "lm_heads.4.weight", poison, "lm_heads.4"),
        Damage("speaker_encoder", "lstm.bias_hh_l1", perturb, "lstm"),
        Damage(
            "mbd",
            "bands.1.unet.decoders.0.convtr.weight",
            perturb,
            "bands.1.unet.decoders.0",
            "mbd, band 1",
        ),
    ),
    "metavoice, the diffusion": (
        Damage("mbd", "bands.1.processor.sum_x", swap_rows, "bands.1.processor", "mbd, band 1"),
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named(name, damaged, verify):
    """Damage is named in each damaged part, and only there."""
    model, damages = name.partition(",")[0], DAMAGES[name]
    done = verify(model, damaged(model, *damages), "--json")
    rows, tensors, parts = failed(done.out)
    assert done.code == 1
    runs = [damage.run or damage.part for damage in damages]
    for damage, run in zip(damages, runs, strict=True):
        own = [row for row in rows if row.startswith(f"{run} ")]
        assert own[0] == f"{run} {damage.row}"  # the first bad row is the culprit
    assert all(row.startswith(tuple(runs)) for row in rows)
    assert sorted(tensors) == sorted(f"{damage.part or model} {damage.tensor}" for damage in damages)
    assert set(runs) <= set(parts)
    assert set(parts) <= {*runs, *(["mbd, band 0"] if "mbd, band 1" in runs else [])}


def test_swapped_entries_of_a_codebook_are_wrong_choices(damaged, verify):
    damage = Damage("codec", "quantizer.layers.0.codebook.embed", reverse, "quantizer")
    done = verify("mars5", damaged("mars5", damage), "--json")
    assert done.code == 1
    assert failed(done.out)[0] == ["codec quantizer.layers.0", "codec quantizer", "codec whole network"]
    wrong = [one["layer"] for one in json.loads(done.out)["codes"] if not one["passed"]]
    assert wrong == ["quantizer.layers.0"]


def reverse(tensor: np.ndarray) -> None:
    tensor[:] = tensor[::-1].copy()


HEADS = {
    "mars5": [("", 4, "mars5 ar.layers.0"), ("nar", 8, "nar tfm.encoder.layers.0")],
    "metavoice": [
        ("", 8, "metavoice transformer.h.0"),
        ("second_stage", 12, "second_stage transformer.h.0"),
    ],
}


@pytest.mark.parametrize("model", HEADS)
def test_a_wrong_number_of_heads_is_named(model, converted, verify, tmp_path):
    shutil.copytree(converted(model), tmp_path / "model")
    for part, heads, _ in HEADS[model]:
        change = {"num_attention_heads": heads}
        edit(tmp_path / "model" / part / "config.json", lambda config, change=change: config.update(change))
    done = verify(model, tmp_path / "model")
    assert done.code == 1
    for part, heads, row in HEADS[model]:
        at = f"{part}/" if part else ""
        assert re.search(
            rf"^FAIL configuration: {at}num_attention_heads: \d+ in the source, {heads} in the",
            done.out,
            re.MULTILINE,
        )
        assert f"FAIL {row} (float32): error " in done.out


def test_another_tokenizer_is_named(converted, verify, tmp_path):
    shutil.copytree(converted("mars5"), tmp_path / "model")
    file = tmp_path / "model/texttok.model"
    *rest, last = file.read_text().splitlines()
    file.write_text("\n".join([*rest, "32 97" if last != "32 97" else "97 32"]))
    done = verify("mars5", tmp_path / "model")
    assert done.code == 1
    assert "FAIL configuration: texttok.model: the text differs from the source's" in done.out


@pytest.mark.parametrize(
    ("model", "tensors"), [("mars5", "mars5 ar.layers"), ("metavoice", "metavoice transformer.h")]
)
def test_eight_bits_are_judged_in_float32_and_their_loss_is_told(model, tensors, converted, verify):
    done = verify(model, converted(model, "float16", EIGHT_BITS), "--json")
    report = json.loads(done.out)
    assert done.code == 0
    assert report["quantization"]["bits"] == 8
    assert report["oracle"] == "torch float64 on the converted model's numbers"
    rows = {(row["dtype"], row["judged"]) for row in report["layers"] if row["part"] == model}
    assert rows == {("float32", True), ("float16", False)}
    assert 30 < next(one["snr_db"] for one in report["tensors"] if one["name"] == tensors) < 60
    losses = report["conversion_losses"]
    assert losses[model] == report["conversion_loss"]
    assert losses.keys() == {"mars5": {"mars5", "nar"}, "metavoice": {"metavoice"}}[model]
    assert losses[model]["agreement"] > 0.8
    assert 0 < losses[model]["divergence"] < 0.02
    assert losses[model]["targets"] == 11


@pytest.mark.parametrize("model", PARTS)
def test_a_narrower_conversion_passes_in_its_own_dtype(model, converted, verify):
    dtype = "bfloat16"  # float16: above
    done = verify(model, converted(model, dtype), "--json")
    report = json.loads(done.out)
    assert (done.code, report["failures"]) == (0, [])
    narrow = {row["part"] for row in report["layers"] if row["dtype"] == dtype}
    assert narrow == {"mars5": {"mars5", "nar"}, "metavoice": {"metavoice"}}[model]
    assert all(row["judged"] for row in report["layers"])
    assert report["conversion_loss"]["agreement"] > 0.9


def test_folders_that_do_not_belong_together(converted, capsys):
    assert cli.run(["verify", *map(str, sources("mars5")), str(converted("metavoice")), "--offline"]) == 3
    assert "weights of MetaVoice (first stage)" in capsys.readouterr().err
    assert cli.run(["verify", *map(str, sources("mars5")), str(AR.parent)]) == 2
    assert "is not a converted model" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "dtype", "bits"),
    [
        ("dia2, v_main", "float32", None),
        ("dia2, v_text", "float32", None),
        ("qwen3, base", "float32", None),
        ("qwen3, base", "float16", 8),
        ("qwen3, custom_voice", "bfloat16", None),
        ("qwen3, voice_design", "bfloat16", 4),
    ],
)
def test_conversions_of_models_that_are_fed_pass(name, dtype, bits, converted, verify):
    how = None if bits is None else Quantization.of("affine", 32, bits)
    done = verify(name, converted(name, dtype, how))
    assert done.code == 0, done.out + done.err
    assert "PASS" in done.out


def test_more_rows_than_the_model_holds(converted, verify):
    done = verify("metavoice", converted("metavoice"), "--rows", "5000")
    assert (done.code, done.out) == (2, "")
    assert re.search(r"--rows: 5000 is outside 2 \.\. \d+", done.err)

"""`mlx-port verify` as a command: good conversions pass, each kind of damage is found and named."""

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import cast

import huggingface_hub
import mlx.core as mx
import numpy as np
import pytest

from converters.rules.dequantize import Quantization
from mlx_port.commands import main as cli
from mlx_port.commands.verify import run as verifying
from tests.converters.folders import DAC_HF, V_0626_HF
from tests.parity.verify.origins import DIA, edit_tensor, failed, perturb, poison, swap_rows

pytestmark = [pytest.mark.rest, pytest.mark.usefixtures("verify_here")]

MEASURED = "Measured by mlx-port verify"
FOUR_BITS = Quantization.of("affine", 32, 4)


@pytest.mark.parametrize("name", [f"dia, {form}" for form in DIA])
def test_a_faithful_conversion_passes(name, converted, verify):
    done = verify(name, converted(name))
    assert (done.code, done.err) == (0, "")
    assert "PASS" in done.out
    assert "FAIL" not in done.out
    assert "TF32 off" in done.out
    stages = ["encoder.block.3", "quantizer.quantizers.8.out_proj", "decoder.block.0"]
    stages += ["encoder.layers.1", "decoder.layers.1.cross_attention.k_proj", "logits_dense", "whole network"]
    for stage in stages:
        assert re.search(rf"^{re.escape(stage)} .* ok$", done.out, re.MULTILINE), stage
    assert re.search(r"^codec, 9 quantizers: (\d+) of \1 codes equal$", done.out, re.MULTILINE)
    assert re.search(r"^dia, argmax of the logits \(float32\): (\d+) of \1 codes", done.out, re.MULTILINE)


def test_a_bit_that_rounding_would_explain_is_found_by_its_hash(converted, tmp_path, verify):
    folder = Path(shutil.copytree(converted("dia, v_0626_hf"), tmp_path / "model"))
    file = folder / "codec/model.safetensors"
    content = bytearray(file.read_bytes())
    content[-4] ^= 1
    file.write_bytes(content)
    done = verify("dia, v_0626_hf", folder)
    assert done.code == 1
    assert ": FAIL: 1 check failed\n" in (folder / "README.md").read_text()
    changed = "FAIL codec/model.safetensors: changed since the conversion, by its sha256"
    assert [line for line in done.out.splitlines() if line.startswith("FAIL")] == [changed]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_narrower_conversion_passes_and_its_loss_is_told(dtype, converted, verify):
    done = verify("dia, v_0626_hf", converted("dia, v_0626_hf", dtype), "--json")
    report = json.loads(done.out)
    assert done.code == 0
    assert report["oracle"] == "torch float64 on the converted model's numbers"
    assert {(row["part"], row["dtype"]) for row in report["layers"]} == {
        ("codec", "float32"),
        ("dia", "float32"),
        ("dia", dtype),
    }
    assert all(row["judged"] for row in report["layers"])
    card = (converted("dia, v_0626_hf", dtype) / "README.md").read_text()
    assert re.search(
        rf"## {MEASURED}\n\n- \d+ layers of MLX .*: all within the bound\n- dia, conversion: ", card
    )
    assert re.search(r"\n- TF32 off, mlx [\d.]+ \(\w+\), torch [\w.+]+ \(cpu\)\n$", card)
    tensors = {one["name"]: one["snr_db"] for one in report["tensors"]}
    assert tensors["norms"] is None  # exact
    assert tensors["codec decoder"] is None
    for kind in ("self-attention", "cross-attention", "mlp", "embeddings", "head"):  # 6 dB per bit
        assert tensors[kind] == pytest.approx({"bfloat16": 55.6, "float16": 73.7}[dtype], abs=1)
    loss = report["conversion_loss"]
    assert loss["agreement"] > 0.9
    assert abs(loss["change"]) < 0.05
    assert 0 <= loss["divergence"] < 0.01


CONVERSIONS = [
    ("dia, v_0626", "bfloat16", 8),
    *(("mars5", *how) for how in (("float32", None), ("float16", 8), ("bfloat16", None))),
    *(("metavoice", *how) for how in (("float32", None), ("float16", 8), ("bfloat16", None))),
    *((f"dia2, {form}", "float32", None) for form in ("v_main", "v_text")),
    *(("qwen3, base", *how) for how in (("float32", None), ("float16", 8))),
    ("qwen3, custom_voice", "bfloat16", None),
    ("qwen3, voice_design", "bfloat16", 4),
]
PARTS = {  # of a report; the first ones take the dtype of a conversion
    "mars5": ("mars5", "nar", "codec", "vocoder"),
    "metavoice": (
        "metavoice",
        "codec",
        "vocoder",
        "speaker_encoder",
        "second_stage",
        "mbd, band 0",
        "mbd, band 1",
    ),
}
NARROW = {"mars5": {"mars5", "nar"}, "metavoice": {"metavoice"}}


@pytest.mark.parametrize(("name", "dtype", "bits"), CONVERSIONS)
def test_conversions_of_every_model_pass(name, dtype, bits, converted, verify, tmp_path):
    """In float32 if they are quantized, else also in their own dtype; what quantization costs is told."""
    how = None if bits is None else Quantization.of("affine", 32, bits)
    page = tmp_path / "report.html"
    done = verify(name, converted(name, dtype, how), "--json", "--html", str(page))
    report, model = json.loads(done.out), name.partition(",")[0]
    assert (done.code, done.err, report["failures"]) == (0, "", [])
    parts = {part["part"] for part in report["parts"]}
    assert parts == {*PARTS.get(model, parts)}
    if model not in NARROW:
        return
    sections = {(row["part"], row["dtype"]) for row in report["layers"]}
    assert page.read_text("utf-8").count("<svg") == 2 * len(sections)
    assert sections == {(part, "float32") for part in parts} | {(part, dtype) for part in NARROW[model]}
    judged = {row["judged"] for row in report["layers"] if (row["part"], row["dtype"]) == (model, dtype)}
    assert judged == {bits is None}
    if bits:
        assert report["quantization"]["bits"] == bits
        losses = report["conversion_losses"]
        assert losses[model] == report["conversion_loss"]
        assert losses.keys() == NARROW[model]
        assert losses[model]["agreement"] > 0.8
        assert 0 < losses[model]["divergence"] < 0.02
        assert losses[model]["targets"] == 11


def test_another_tokenizer_is_named(converted, verify, tmp_path):
    shutil.copytree(converted("mars5"), tmp_path / "model")
    file = tmp_path / "model/texttok.model"
    *rest, last = file.read_text().splitlines()
    file.write_text("\n".join([*rest, "32 97" if last != "32 97" else "97 32"]))
    done = verify("mars5", tmp_path / "model")
    assert done.code == 1
    assert "FAIL configuration: texttok.model: the text differs from the source's" in done.out


def test_damage_of_the_diffusion_is_told_by_its_band(damaged, verify):
    damage = edit_tensor("mbd", "bands.1.unet.decoders.0.convtr.weight", perturb)
    done = verify("metavoice", damaged("metavoice", damage), "--json")
    rows, tensors, _ = failed(done.out)
    assert (done.code, rows[0]) == (1, "mbd, band 1 bands.1.unet.decoders.0")
    assert tensors == ["mbd bands.1.unet.decoders.0.convtr.weight"]


def test_a_perturbed_layer_is_named(damaged, verify):
    folder = damaged("dia, v_0626", edit_tensor("", "model.decoder.layers.1.mlp.down_proj.weight", perturb))
    done = verify("dia, v_0626", folder, "--json")
    assert done.code == 1
    assert failed(done.out)[0] == ["dia decoder.layers.1", "dia whole network"]
    assert "model.decoder.layers.1.mlp.down_proj.weight: " in "\n".join(json.loads(done.out)["failures"])


def test_swapped_rows_are_named(damaged, verify):
    """In two layers of each network: these layers and their parents are named, and no other."""
    swapped = [
        ("", "model.encoder.layers.0.self_attention.k_proj.weight", "dia encoder.layers.0"),
        (
            "",
            "model.decoder.layers.0.cross_attention.v_proj.weight",
            "dia decoder.layers.0.cross_attention.v_proj",
        ),
        ("codec", "decoder.block.2.res_unit2.conv1.weight", "codec decoder.block.2"),
        ("codec", "quantizer.quantizers.4.in_proj.weight", "codec quantizer.quantizers.4.in_proj"),
    ]

    def damage(folder: Path) -> None:
        for part, tensor, _ in swapped:
            edit_tensor(part, tensor, swap_rows)(folder)

    done = verify("dia, v_v01", damaged("dia, v_v01", damage))
    assert done.code == 1
    named = set(re.findall(r"^FAIL (.*) \(float32\): error ", done.out, re.MULTILINE))
    assert {layer for _, _, layer in swapped} <= named
    around = {"dia decoder.layers.0", "dia whole network", "codec whole network"}  # contain such a layer
    assert named - {layer for _, _, layer in swapped} <= around
    for part, tensor, _ in swapped:
        assert f"FAIL {part or 'dia'} {tensor}: " in done.out


@pytest.mark.parametrize("form", [(), ("bfloat16",), ("float32", FOUR_BITS)])
def test_rows_that_no_input_reaches_are_compared_too(form, damaged, verify):
    folder = damaged("dia, v_0626", edit_embedding, form=form)
    done = verify("dia, v_0626", folder, "--json")
    assert done.code == 1
    assert failed(done.out)[0] == []
    assert [fault["tensor"] for fault in json.loads(done.out)["tensor_faults"]] == [
        "model.encoder.embedding.weight"
    ]


def edit_embedding(folder: Path) -> None:
    file = str(folder / "model.safetensors")
    tensors = cast(dict[str, mx.array], mx.load(file))
    order = mx.array([*range(200), 201, 200, *range(202, 256)])
    tensors["model.encoder.embedding.weight"] = tensors["model.encoder.embedding.weight"][order]
    mx.eval(tensors)
    mx.save_safetensors(file, tensors, {"format": "mlx"})


def test_swapped_rows_of_a_quantised_layer_are_named(damaged, verify):
    tensor = "model.decoder.layers.1.mlp.gate_up_proj"
    damage = edit_tensor("", f"{tensor}.weight", swap_rows)
    done = verify("dia, v_0626", damaged("dia, v_0626", damage, form=("float32", FOUR_BITS)))
    assert done.code == 1
    assert f"FAIL dia {tensor}.weight: " in done.out


@pytest.mark.parametrize("bits", [4, 8])
def test_a_code_that_is_three_steps_off_is_named(bits, damaged, verify, monkeypatch):
    """A bound of four times the two steps of a group would accept it."""
    monkeypatch.setattr(verifying, "probes", lambda *_: [])  # tensors only
    tensor = "model.decoder.layers.1.mlp.gate_up_proj.weight"

    def damage(words: np.ndarray) -> None:
        lowest = int(words[7, 3]) % 2**bits
        words[7, 3] = int(words[7, 3]) + (3 if lowest + 3 < 2**bits else -3)

    form = ("float32", Quantization.of("affine", 32, bits))
    done = verify("dia, v_0626", damaged("dia, v_0626", edit_tensor("", tensor, damage), form=form), "--json")
    assert done.code == 1
    (fault,) = json.loads(done.out)["tensor_faults"]
    assert fault["tensor"] == tensor
    assert fault["allowed"] < fault["error"] < 4 * fault["allowed"]


def test_a_wrong_configuration_is_named(damaged, verify):
    def damage(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"cross_rope": True}))

    done = verify("dia, v_0626", damaged("dia, v_0626", damage))
    assert done.code == 1
    assert "FAIL configuration: cross_rope: False in the source, True in the converted model" in done.out
    assert "FAIL dia decoder.layers.0 (float32): error " in done.out


def test_numbers_that_are_not_finite_fail(damaged, verify):
    folder = damaged("dia, v_0626", edit_tensor("", "logits_dense.weight", poison))
    done = verify("dia, v_0626", folder, "--json")
    assert done.code == 1
    assert "dia logits_dense" in failed(done.out)[0]
    assert "logits_dense.weight" in [fault["tensor"] for fault in json.loads(done.out)["tensor_faults"]]


class Page(HTMLParser):
    """Check that tags close in order; collect names and fetched addresses."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.fetched: list[str | None] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.fetched += [value for name, value in attrs if name in ("src", "href", "srcset")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_and_fetches_nothing(converted, verify, tmp_path):
    done = verify("dia, v_0626", converted("dia, v_0626"), "--html", str(tmp_path / "report.html"))
    text = (tmp_path / "report.html").read_text("utf-8")
    page = Page(text)
    assert done.code == 0
    assert page.seen.count("svg") == 4  # errors and SNR, of Dia and of the codec
    assert page.fetched == []
    assert "@import" not in text
    assert "url(" not in text
    for name in ("decoder.layers.1.cross_attention.k_proj", "quantizer.quantizers.0", "PASS"):
        assert name in text
    coordinates = [float(y) for y in re.findall(r'c?y="(-?[\d.]+|nan|inf)"', text)]
    assert coordinates
    assert all(0 <= y < 400 for y in coordinates)


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--rows", "1000"], 2, "--rows: 1000 is outside 2 .. 128"),
        (["--rows", "1"], 2, "--rows: 1 cannot be used; give a whole number >= 2"),
        (["--seconds", "0"], 2, "--seconds"),
        (
            ["--html", "no/such/folder/x.html"],
            3,
            "--html: no/such/folder/x.html: its folder is missing or not writable",
        ),
    ],
)
def test_flags_are_checked(flags, code, words, converted, verify):
    done = verify("dia, v_0626", converted("dia, v_0626"), *flags)
    assert (done.code, done.out) == (code, "")
    assert words in done.err
    assert done.err.count("\n") == 1


def test_the_seed_is_that_of_the_inputs(converted, verify, monkeypatch):
    given = []
    monkeypatch.setattr(verifying, "probes", lambda model, inputs: given.append(inputs) or [])
    seeds = [
        json.loads(verify("dia, v_0626", converted("dia, v_0626"), "--json", *flags).out)["seed"]
        for flags in SEEDS
    ]
    assert seeds == [inputs.seed for inputs in given] == [0, 7]
    assert (given[1].rows, given[1].seconds) == (20, 0.1)


SEEDS = ((), ("--seed", "7"))


@pytest.mark.parametrize("flags", [[], ["--offline"]], ids=["online", "offline"])
def test_revision_and_offline_reach_the_download(flags, converted, monkeypatch):
    """For the source and its codec; the revision is that of the source."""
    calls = []

    def snapshot_download(repository, *, revision, local_files_only=False, dry_run=False, **_):
        if dry_run:
            return []
        calls.append((repository, revision, local_files_only))
        return str({"our/dia": V_0626_HF, "our/dac": DAC_HF}[repository])

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    monkeypatch.setattr(verifying, "probes", lambda *_: [])
    destination = str(converted("dia, v_0626_hf"))
    assert cli.run(["verify", "our/dia", destination, "--codec", "our/dac", "--revision", "v9", *flags]) == 0
    assert calls == [("our/dia", "v9", bool(flags)), ("our/dac", None, bool(flags))]


def test_folders_that_do_not_belong_together(converted, verify, tmp_path):
    done = verify("dia, v_v01", converted("dia, v_0626"))
    assert done.code == 4
    assert "not converted from" in done.err
    assert "give the checkpoint that it was converted from" in done.err
    assert verify("dia, v_0626", tmp_path / "nothing").code == 3


def test_an_unconverted_destination_is_refused(capsys, tmp_path):
    shutil.copytree(V_0626_HF, tmp_path / "model")
    shutil.copytree(DAC_HF, tmp_path / "model/codec")
    assert cli.run(["verify", str(tmp_path / "model"), str(tmp_path / "model")]) == 2
    assert "is not a converted model" in capsys.readouterr().err

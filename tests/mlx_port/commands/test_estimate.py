"""`mlx-port estimate`: the table, its JSON, and refusals."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from converters.published import open_published
from mlx_port.commands.estimate import read_model
from tests.mlx_port.commands.running import one_line
from tests.mlx_port.commands.running import run as run_command
from tests.tiny.dia import write_published
from tests.tiny.mars5 import converted
from tests.tiny.networks import dac_config, dia_config, tiny
from tests.tiny.published_models import AR, NAR
from tts_core import models
from tts_core.codecs.encodec import ENCODEC_24KHZ
from tts_core.codecs.vocos import VOCOS_ENCODEC_24KHZ
from tts_core.dia.text import prepare, tokenize
from tts_core.memory.machine import BACKENDS

DOCS = Path(__file__).parents[3] / "docs/use"
PUBLISHED = "nari-labs/Dia-1.6B-0626"


def run(capsys, *arguments):
    return run_command(capsys, "estimate", *arguments)


def facts(capsys, *arguments):
    code, out, err = run(capsys, *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


SHOWN = {  # model, flags → the first line, and the weights of every format in MB
    "dia": ((PUBLISHED, "--seconds", 10), "a text of 10.0 s", "float32 6,755, bfloat16 3,533, 8 bits 2,040"),
    "mars5": (("CAMB-AI/MARS5-TTS", "--batch", 2), "2 texts of 10.0 s", "float32 4,978, bfloat16 2,548"),
}


@pytest.mark.parametrize("model", SHOWN)
def test_a_published_model_needs_no_files(capsys, model):
    """Weights by format, what a minute of speech and the work take, and where the work was measured."""
    asked, above, formats = SHOWN[model]
    code, out, err = run(capsys, *asked)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == f"MB at the peak of {above} of speech"
    assert lines[2].split() == list(BACKENDS)
    rows = {line[:14].strip(): line[14:].split() for line in lines[3:8]}
    assert list(rows) == ["weights", "libraries", "row", "work", "total"]
    found = facts(capsys, *asked)["backends"]
    for name, row in rows.items():
        assert row == [f"{one[name] / 1e6:,.0f}" for one in found.values()]
    minute = found["torch-cpu"]["minute"] / 1e6
    assert f"a minute of speech takes {minute:,.0f}\n" in out
    assert f"weights: {formats}" in out
    [where] = [line for line in lines if line.startswith("work was measured on: ")]
    for backend, one in found.items():
        assert f"{backend}: {one['work_measured_on'] or 'not measured'}" in where


def test_the_codecs_precision_reaches_the_estimate_on_cuda(capsys):
    asked = ("--model", PUBLISHED, "--dtype", "bfloat16", "--seconds", 10)
    usual = facts(capsys, *asked)["backends"]
    assert facts(capsys, *asked, "--codec-precision", "tf32")["backends"] == usual
    exact = facts(capsys, *asked, "--codec-precision", "float32")["backends"]
    assert exact.pop("torch-cuda")["total"] < usual.pop("torch-cuda")["total"] - 0.5e9
    assert exact == usual


@pytest.mark.parametrize("model", ["dia", "mars5"])
def test_a_models_name_is_that_of_its_first_published_size(capsys, model):
    size = next(iter(models.MODELS[model].sizes))
    assert facts(capsys, model) == facts(capsys, "--model", model) == facts(capsys, "--model", size)


Q8, Q4 = ("-q",), ("-q", "--q-bits", "4")


def gigabytes(size: int) -> str:
    return f"{size / 1e9:.2f}"


def test_the_estimates_on_dias_page(capsys):
    page, figures = (DOCS / "dia.md").read_text(), []
    for name, flags in [
        ("float32", ("--dtype", "float32")),
        ("bfloat16", ("--dtype", "bfloat16")),
        ("8 bits (MLX)", ("--dtype", "bfloat16", *Q8)),
        ("4 bits (MLX)", ("--dtype", "bfloat16", *Q4)),
    ]:
        found = facts(capsys, "--model", PUBLISHED, "--seconds", 10, *flags)["backends"]
        weights = gigabytes(found["mlx-metal"]["weights"])
        cuda = "" if "-q" in flags else f" {gigabytes(found['torch-cuda']['total'])}"
        figures.append(gigabytes(found["mlx-metal"]["total"]))
        assert f"| {name} | {weights} |{cuda} | {figures[-1]} |" in page
    answer = "5.06 GB in bfloat16, 3.56 with 8 bits, 2.77 with 4"
    assert answer == "{} GB in bfloat16, {} with 8 bits, {} with 4".format(*figures[1:])
    assert answer in " ".join((DOCS / "questions.md").read_text().split())


def test_the_estimates_on_metavoices_page(capsys):
    page, rows = (DOCS / "metavoice.md").read_text(), ([], [], [])
    for flags in ((), Q8, Q4):
        asked = ("--model", "metavoiceio/metavoice-1B-v0.1", "--dtype", "bfloat16", *flags)
        short, longest = (
            facts(capsys, *asked, *more)["backends"]["mlx-metal"] for more in (("--seconds", 4), ())
        )
        sizes = short["weights"], short["total"], longest["total"]
        for row, size in zip(rows, sizes, strict=True):
            row.append(gigabytes(size))
    for row in rows:
        assert f" | {' | '.join(row)} |\n" in page


def test_a_long_text_takes_what_a_full_window_takes(capsys):
    """It goes in pieces."""
    code, out, _ = run(capsys, "--model", PUBLISHED, "--text", "word " * 400)
    assert code == 0
    assert out.splitlines()[0] == "MB at the peak of a text of 35.5 s of speech"


@pytest.mark.parametrize(
    ("model", "dtype"),
    [(PUBLISHED, "float32"), ("CAMB-AI/MARS5-TTS", "float16"), ("metavoiceio/metavoice-1B-v0.1", "float32")],
)
def test_the_dtype_is_that_of_the_published_files(capsys, model, dtype):
    assert facts(capsys, "--model", model)["dtype"] == dtype


def test_the_embedded_voice_is_the_default(capsys):
    found = facts(capsys)
    assert found["dtype"] == "float32"
    assert set(found["backends"]) == set(BACKENDS)
    assert found["backends"]["torch-cpu"]["total"] < 1e9


def test_flags_reach_the_estimate(capsys):
    text = "[S1] Hello there."
    flags = ["--text", text, "--seconds", "1.01", "--batch", "3", "--dtype", "bfloat16"]
    found = facts(capsys, "--model", PUBLISHED, *flags, "-q", "--q-bits", "8")
    size = len(tokenize(prepare(text, None)))
    assert found["job"] == {
        "text_bytes": size,
        "frames": 87,  # 86.13 per second, rounded up
        "prompt_frames": 0,
        "batch": 3,
        "guided": True,
    }
    assert found["quantization"] == {"mode": "affine", "group_size": 64, "bits": 8}
    sizes = {name: one["weights"] for name, one in found["backends"].items()}
    assert sizes["torch-cuda"] > 3.5e9 > 2.1e9 > sizes["mlx-metal"]


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e400", "1000001"])
def test_seconds_that_no_speech_has(capsys, seconds):
    assert one_line(capsys, 2, "", "estimate", "--seconds", seconds).startswith("error: --seconds: ")


def test_a_folder_of_published_files_is_read(capsys, tmp_path):
    codec = replace(dac_config(), codebook_dim=(4,) * 4)
    folder = write_published(tmp_path / "dia", tiny("dia"), tiny(codec))
    found = facts(capsys, "--model", folder, "--dtype", "float16")
    assert found["dtype"] == "float16"
    assert found["job"]["frames"] == dia_config().max_frames


def test_a_place_that_contains_no_codec_is_refused(capsys, tmp_path):
    folder = write_published(tmp_path / "dia", tiny("dia"), tiny("dac"))
    (folder / "codec").rename(tmp_path / "codec")
    assert facts(capsys, "--model", folder)["job"]["frames"] == dia_config().max_frames
    (tmp_path / "empty").mkdir()
    one_line(
        capsys,
        3,
        "empty: missing: weights of DAC",
        "estimate",
        "--model",
        folder,
        "--codec",
        tmp_path / "empty",
    )


def test_a_converted_and_quantised_folder_is_read(capsys, tmp_path):
    from converters.cli import convert_weights
    from tts_core.command.runner import run as run_converter
    from tts_core.voice.embedded import CODEC, DIA

    flags = [
        "--hf-path",
        DIA,
        "--codec",
        CODEC,
        "--mlx-path",
        tmp_path / "voice",
        "-q",
        "--dtype",
        "bfloat16",
    ]
    assert run_converter(convert_weights, list(map(str, flags)), debug=False) == 0
    capsys.readouterr()
    found = facts(capsys, "--model", tmp_path / "voice")
    assert (found["dtype"], found["quantization"]["bits"]) == ("bfloat16", 8)
    one_line(capsys, 2, "is already quantized", "estimate", "--model", tmp_path / "voice", "-q")


def test_the_estimate_says_what_was_measured_or_that_nothing_was(capsys, tmp_path):
    from converters.card import add_measurements
    from converters.convert import convert
    from tts_core.voice.embedded import CODEC, DIA

    assert "Nothing was measured" in run(capsys)[1]
    folder = tmp_path / "voice"
    convert(open_published([DIA], codec=CODEC, offline=True), folder)
    assert facts(capsys, "--model", folder)["measured"] == []
    assert "Nothing was measured" in run(capsys, "--model", folder)[1]
    add_measurements(folder, ["9 layers compared", "mlx 1"])
    assert facts(capsys, "--model", folder)["measured"] == ["9 layers compared", "mlx 1"]
    shown = run(capsys, "--model", folder)[1]
    assert "Measured by mlx-port verify: 9 layers compared\n" in shown
    assert "Nothing was measured" not in shown
    assert "Nothing was measured" in run(capsys, "--model", folder, "-q")[1]


@pytest.mark.parametrize(
    ("code", "message", "arguments"),
    [
        (3, "--model: no/such/folder: no such file", ["--model", "no/such/folder"]),
        (3, "estimate downloads nothing", ["--model", "someone/something"]),
        (2, "is more than this model's limit, 35.5", ["--model", PUBLISHED, "--seconds", 60]),
        (2, "there are no words", ["--text", " "]),
        (2, "--batch", ["--batch", 0]),
        (2, "--dtype", ["--dtype", "int8"]),
        (2, "affine takes", ["-q", "--q-group-size", 7]),
        (2, "--q-bits, --q-mode: only with -q", ["--q-bits", "8", "--q-mode", "mxfp8"]),
    ],
)
def test_what_cannot_be_estimated(capsys, code, message, arguments):
    one_line(capsys, code, message, "estimate", *arguments)


def test_codecs_that_are_not_there_count_as_published(tmp_path):
    folder = tmp_path / "model"  # what lies beside a folder is looked at, too
    folder.mkdir()
    for file in (AR, NAR):
        shutil.copy(file, folder / file.name)
        shutil.copy(file.with_suffix(".json"), folder / file.with_suffix(".json").name)
    found = read_model(str(folder), None)
    assert (found.name, list(found.configs)) == ("mars5", ["mars5", "mars5_nar", "encodec", "vocos"])
    assert found.configs["mars5"] == open_published(AR, parts=["mars5"]).parts["mars5"].config
    assert (found.configs["encodec"], found.configs["vocos"]) == (ENCODEC_24KHZ, VOCOS_ENCODEC_24KHZ)
    assert found.dtype == open_published(AR, parts=["mars5"]).parts["mars5"].dtype


def test_a_complete_folder_is_opened_once(monkeypatch):
    folder, opened = str(converted()), []  # made before openings are counted

    def counting(*arguments, **options):
        opened.append(arguments)
        return open_published(*arguments, **options)

    monkeypatch.setattr("converters.published.open_published", counting)
    assert read_model(folder, None).name == "mars5"
    assert len(opened) == 1

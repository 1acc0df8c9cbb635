"""`mlx-port bench`: its plan, its measurements on tiny models, and refusals."""

import json
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import pytest

from benchmarks import macs
from converters.published import open_published
from mlx_port.commands.bench import cases, command, measure, report, sweep
from mlx_port.commands.bench.cases import check_fits, choose_subject, report_forms
from mlx_port.commands.bench.cases import fitting as plan
from mlx_port.commands.bench.measure import Stopwatch
from mlx_port.commands.bench.parts import RandomParts
from mlx_port.runtime import switches
from tests.mlx_port.commands.running import one_line
from tests.mlx_port.commands.running import run as run_command
from tests.tiny.networks import codec_config, dac_config, dia2_config, dia_config, mimi_config, qwen3_config
from tests.tiny.published_models import sources
from tts_core import models
from tts_core.errors import ResourceError
from tts_core.pipeline import Progress

pytestmark = pytest.mark.rest

FOUR = {"group_size": 64, "bits": 4, "mode": "affine"}


def run(capsys, *arguments):
    return run_command(capsys, "bench", *arguments)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Do not read half a gigabyte."""
    monkeypatch.setattr(measure, "READ_BYTES", 2**20)


@pytest.fixture
def tiny(monkeypatch):
    """Published sizes that are tiny."""
    sizes = {
        "dia": {"dia": dia_config(), "dac": dac_config()},
        "dia2": {"dia2": dia2_config(), "mimi": replace(mimi_config(), n_codebooks=6)},
        "qwen3": {"qwen3": qwen3_config(), "qwen3_codec": codec_config()},
    }
    for name in ("mars5", "metavoice"):
        sizes[name] = {kind: part.config for kind, part in open_published(sources(name)).parts.items()}
    for name, configs in sizes.items():
        import_module(f"mlx_port.{name}.pipeline")  # keeps the model that it is imported with
        spec = replace(models.MODELS[name], sizes={f"tiny/{name}": configs})
        if name == "mars5":  # fewer of the steps that are not timed
            spec = replace(spec, speed=replace(spec.speed, options=lambda _: {"timesteps": 2}))
        monkeypatch.setattr(sys.modules[f"tts_core.{name}.model"], "MODEL", spec)
    return sizes


@pytest.mark.parametrize("name", models.NAMES)
def test_a_published_size_is_timed_without_its_weights(capsys, tiny, name):
    flags = ["--random", name, "--seconds", 0.2, "--runs", 2, "--dtype", "float32", "--json"]
    code, out, err = run(capsys, *flags)
    assert code == 0, err
    assert "1 run to warm up, 2 timed" in err
    found = json.loads(out)
    assert found["format"] == 1
    assert found["model"]["random_weights_of"] == f"tiny/{name}"
    assert found["machine"]["read_rate"] > 0
    assert found["versions"]["mlx"]
    [case] = found["cases"]
    assert (case["dtype"], case["bits"], case["batch"], case["refused"]) == ("float32", 32, 1, None)
    low, high = case["step_range"]
    assert 0 < low <= case["step_ms"] <= high
    assert case["steps"] >= 2 * measure.FEWEST
    share = case["step_bytes"] / (case["step_ms"] / 1000) / found["machine"]["read_rate"]
    assert case["share_of_read_rate"] == pytest.approx(share)
    assert 0 < case["audio_seconds"] < 1
    assert case["peak_memory"] > case["step_bytes"]
    assert case["first_audio_seconds"] > 0
    assert case["real_time_factor"] > 0


def test_a_converted_folder_is_timed_in_several_forms(capsys, converted):
    """Batches, a half type and quantized copies, the table on stdout and progress on stderr."""
    flags = ["--model", converted, "--seconds", 0.2, "--runs", 1, "--batch", "2,1", "--bits", "32,16,8"]
    code, out, err = run(capsys, *flags)
    assert code == 0, err
    rows = [line.split()[:3] for line in out.splitlines() if line.startswith(("float32", "bfloat16"))]
    forms = [("float32", "32"), ("bfloat16", "16"), ("float32", "8")]
    assert rows == [[*form, batch] for form in forms for batch in "21"]
    assert len(err.splitlines()) == 6
    assert str(converted) not in out


def test_the_embedded_voice_is_the_default():
    subject = choose_subject(None, None)
    assert (subject.name, subject.dtype, subject.published) == ("dia", "float32", None)


def test_frames_and_forms_follow_the_flags(tiny):
    subject = choose_subject(None, "tiny/dia")
    planned = plan(subject, "Hello.", 0.5, batch=[1, 3], dtypes=["float32", "float16"], bits=["16", "4"])
    assert [(case.dtype, case.bits, case.batch) for case in planned] == [
        ("float16", 16, 1),
        ("float16", 16, 3),
        ("float32", 4, 1),
        ("float32", 4, 3),
        ("float16", 4, 1),
        ("float16", 4, 3),
    ]
    rate = models.MODELS["dia"].speed.frame_rate(subject.configs)
    assert {case.frames for case in planned} == {int(np.ceil(0.5 * rate))}
    assert planned[1].estimated > planned[0].estimated


def test_runs_that_do_not_fit_are_reported_and_not_started(capsys, tiny, monkeypatch):
    subject = choose_subject(None, "dia")
    small, large = plan(subject, None, 0.2, batch=[1, 64], dtypes=["float32"], bits=None)
    assert small.estimated < large.estimated
    monkeypatch.setattr(cases, "free_bytes", lambda: small.estimated)
    flags = ["--random", "dia", "--seconds", 0.2, "--runs", 1, "--dtype", "float32", "--json"]
    code, out, _ = run(capsys, *flags, "--batch", "1,64")
    assert code == 0
    fitting, refused = json.loads(out)["cases"]
    assert fitting["refused"] is None
    assert refused["refused"].startswith("takes 0.")
    assert "step_ms" not in refused
    monkeypatch.setattr(cases, "free_bytes", lambda: small.estimated - 1)
    monkeypatch.setattr(measure, "load", lambda *_: pytest.fail("loaded"))
    planned = plan(subject, None, 0.2, batch=[1, 64], dtypes=["float32"], bits=None)
    with pytest.raises(ResourceError, match=r"the smallest of 2 runs \(32 bits, batch 1\) takes"):
        check_fits(planned)
    assert run(capsys, *flags)[0] == 5


@pytest.mark.parametrize(
    ("code", "message", "flags"),
    [
        (3, "random: dai is not a published model; did you mean dia?", ["--random", "dai"]),
        (2, "random: --model is given, too", ["--random", "dia", "--model", "x"]),
        (3, "model: x is not there; give a folder", ["--model", "x"]),
        (2, "bits: none of --dtype float32 has 16 bits", ["--bits", "16", "--dtype", "float32"]),
        (2, "'7' is not one of '16'", ["--bits", "4,7"]),
        (2, "0 is not in the range", ["--batch", "1,0"]),
        (2, "--batch: ", ["--batch", ""]),
        (2, "text: there are no words in it", ["--text", "  "]),
    ],
)
def test_mistakes_are_one_line_before_any_work(capsys, monkeypatch, code, message, flags):
    monkeypatch.setattr(measure, "load", lambda *_: pytest.fail("loaded"))
    one_line(capsys, code, message, "bench", *flags)


def test_a_quantized_folder_keeps_its_bits(capsys, converted, monkeypatch):
    monkeypatch.setattr(cases.Subject, "quantization", FOUR)
    subject = replace(choose_subject(str(converted), None), quantization=FOUR)
    [case] = plan(subject, "Hello.", 0.5, batch=[1], dtypes=None, bits=None)
    assert case.quantization == FOUR
    with pytest.raises(ValueError, match="is already quantized; leave the flag out"):
        plan(subject, "Hello.", 0.5, batch=[1], dtypes=None, bits=["8"])


def test_a_text_that_ends_at_once_is_an_error(capsys, tiny, monkeypatch):
    monkeypatch.setattr(measure, "FEWEST", 10_000)
    code, out, err = run(capsys, "--random", "dia", "--seconds", 0.2, "--dtype", "float32")
    assert (code, out) == (6, "")
    assert "the model ended after" in err


def test_a_stopwatch_times_steps_of_its_stages_only(monkeypatch):
    """Neither the time to the first step nor that of another stage counts."""
    now = iter(range(100))
    monkeypatch.setattr(measure.time, "perf_counter", lambda: next(now))
    watch = Stopwatch(("AR",))
    for stage, steps in (("codec", 2), ("AR", 4), ("NAR", 3), ("AR", 2)):
        watch.tell(Progress(stage, 0))
        for _ in range(steps):
            assert not watch.is_set()
    watch.stop()
    assert watch.taken == [1, 1, 1, 1]
    assert len(watch.busy) == 4
    assert min(watch.busy) >= 0


def test_a_stopwatch_that_is_asked_twice_counts_a_step_once(monkeypatch):
    now = iter([0, 1e-5, 2, 2 + 1e-5, 4])
    monkeypatch.setattr(measure.time, "perf_counter", lambda: next(now))
    watch = Stopwatch(("AR",))
    assert not any(watch.is_set() for _ in range(5))
    watch.stop()
    assert watch.taken == pytest.approx([2, 2], abs=1e-4)


def test_weights_are_drawn_quantized_and_equal_every_time(tiny):
    """As a folder of convert-weights would have them; norms are 1."""
    config = tiny["dia"]["dia"]
    wide = replace(config, decoder_config=replace(config.decoder_config, intermediate_size=64))
    configs = tiny["dia"] | {"dia": wide}
    parts = RandomParts("dia", configs, models.MODELS["dia"].speed.documents(configs), "float32")
    plain = parts._read("dia")
    large = {name for name in plain if models.network("dia").is_large(name)}
    fitting = {name for name in large if plain[name].shape[-1] % 32 == 0}
    assert fitting
    assert fitting < large
    parts.quantization = {"group_size": 32, "bits": 4, "mode": "affine"}
    made, how = parts._read("dia"), parts.quantization_of("dia")
    assert how is not None
    assert {name.removesuffix(".weight") for name in large - fitting} == {k for k, v in how.items() if not v}
    for name in fitting:
        weight, scales, _ = mx.quantize(plain[name], 32, 4)
        assert mx.array_equal(made[name], weight)
        assert mx.array_equal(made[f"{name.removesuffix('.weight')}.scales"], scales)
    for name in plain.keys() - fitting:
        assert mx.array_equal(made[name], plain[name])
    norm = plain["model.decoder.norm.weight"]
    assert mx.array_equal(norm, mx.ones(norm.shape))
    assert parts.quantization_of("dac") is None


def test_the_read_rate_is_bytes_a_second(monkeypatch):
    monkeypatch.setattr(measure, "_reads", lambda read: iter([0.5, 0.25]))
    assert measure.read_rate() == 4 * 2**20


def test_the_first_run_is_not_counted_and_memory_is_freed_between_forms(tiny, monkeypatch):
    """The first run compiles; buffers of one form would count for the next one's peak."""
    took, events = iter([9.0, 1.0, 2.0, 3.0] * 2), []

    def speak(*_):
        seconds = next(took)
        events.append(seconds)
        result = SimpleNamespace(audio_seconds=1.0, time_to_first_audio=seconds, peak_memory_usage=seconds)
        return [result], SimpleNamespace(taken=[seconds], busy=[seconds / 4]), seconds

    monkeypatch.setattr(measure, "load", lambda *_: object())
    monkeypatch.setattr(measure, "_speak", speak)
    monkeypatch.setattr(measure.mx, "clear_cache", lambda: events.append("cleared"))
    subject = choose_subject(None, "dia")
    planned = plan(subject, None, 0.2, batch=[1], dtypes=["float32", "float16"], bits=None)
    found = measure.measure(subject, planned, runs=3, tell=lambda line: None)
    expected = measure.Measured(2000.0, (1000.0, 3000.0), 500.0, 3, 2.0, 2.0, 1.0, 3)
    assert found == [expected, expected]
    assert events == [9.0, 1.0, 2.0, 3.0, "cleared"] * 2


def test_a_report_has_rows_of_every_model_and_makes_the_page(capsys, tiny, monkeypatch, tmp_path):
    """A model that does not fit says so in its rows; the others' figures are kept. The page has them."""
    one = measure.Measured(2.0, (1.9, 2.1), 1.0, 40, 0.5, 0.1, 0.2, 10**9)
    monkeypatch.setattr(measure, "_measure", lambda *_: one)
    monkeypatch.setattr(measure, "load", lambda *_: object())
    monkeypatch.setattr(cases, "backend_name", lambda: "mlx-metal")
    forms = report_forms(None)
    needed = {
        name: max(case.estimated for case in plan(choose_subject(None, name), None, 0.2, batch=[1], **forms))
        for name in models.NAMES
    }
    largest = max(needed, key=lambda name: needed[name])
    monkeypatch.setattr(cases, "free_bytes", lambda: sorted(needed.values())[-2])
    monkeypatch.setattr(sweep, "sweep", lambda *_: [])
    file = tmp_path / "mac.json"
    code, out, err = run(capsys, "--report", "--seconds", 0.2, "--json", file)
    assert code == 0, err
    found = json.loads(file.read_text())
    assert [one["model"]["name"] for one in found] == [*models.NAMES]
    head, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in out.splitlines()]
    assert head == [*report.COLUMNS]
    assert [row[2:4] for row in rows] == [
        [f"tiny/{name}, random weights", f"{bits} bits, bfloat16"]
        for name in models.NAMES
        for bits in (16, 8, 4)
    ]
    refused = [row[2:] for row in rows if row[6].startswith("takes 0.")]
    assert [f"tiny/{largest}, random weights", "16 bits, bfloat16"] in [row[:2] for row in refused]
    assert {row[0] for row in refused} == {f"tiny/{largest}, random weights"}
    assert all(row[5:] == ["-", "-", "-", "-"] for row in refused)
    metavoice = next(row for row in rows if "metavoice" in row[2] and row[7] != "-")  # two ids a frame
    assert metavoice[6].startswith("4.0 (")
    assert metavoice[7:] == ["2.0", "0.10", "0.50", "1.00"]
    assert macs.page(tmp_path).endswith(out)

    monkeypatch.setattr(cases, "fitting", lambda *_, **__: pytest.fail("planned"))
    assert run(capsys, "--report", "--server", "http://127.0.0.1:1")[0] == 2


@pytest.mark.parametrize(
    ("backend", "dtypes", "expected"),
    [
        ("mlx-cpu", None, {"dtypes": ["float32"], "bits": ["32"]}),
        ("mlx-metal", None, {"dtypes": ["bfloat16"], "bits": ["16", "8", "4"]}),
        ("mlx-cpu", ["float16"], {"dtypes": ["float16"], "bits": ["16"]}),
        ("mlx-metal", ["float32"], {"dtypes": ["float32"], "bits": ["32", "8", "4"]}),
    ],
)
def test_the_forms_of_a_report_suit_the_device(monkeypatch, backend, dtypes, expected):
    monkeypatch.setattr(cases, "backend_name", lambda: backend)
    assert report_forms(dtypes) == expected


def test_a_report_of_a_gpu_has_a_row_of_each_setting(capsys, tiny, monkeypatch):
    one = measure.Measured(2.0, (1.9, 2.1), 1.0, 40, 0.5, 0.1, 0.2, 10**9)
    asked = []

    def swept(flags, tell):
        """Time each setting as its process would."""
        asked.append(flags)
        subject = choose_subject(None, "qwen3")
        planned = plan(subject, None, 0.2, batch=[1], dtypes=None, bits=["8"])
        made = report.report(subject, planned, [one], 1)
        return [made | {"settings": settings} for settings in switches.SWEEP]

    monkeypatch.setattr(measure, "_measure", lambda *_: one)
    monkeypatch.setattr(measure, "load", lambda *_: object())
    monkeypatch.setattr(cases, "backend_name", lambda: "mlx-metal")
    monkeypatch.setattr(cases, "free_bytes", lambda: None)
    monkeypatch.setattr(sweep, "sweep", swept)
    code, out, err = run(capsys, "--report", "--seconds", 0.2)
    assert code == 0, err
    rows = [line for line in out.splitlines() if "MLX_" in line]
    assert len(rows) == sum(map(bool, switches.SWEEP))
    assert all("tiny/qwen3" in row and "8 bits" in row for row in rows)
    assert asked == [["--random", "qwen3", "--seconds", "0.2", "--runs", "1", "--bits", "8", "--batch", "1"]]


def test_a_sweep_times_each_setting_in_a_process_of_its_own(capsys, monkeypatch):
    """The embedded voice, two settings."""
    settings = ({}, {switches.LAUNCHES: "2", switches.KEYS: "float32"}, {})
    monkeypatch.setattr(sweep, "SWEEP", settings)
    code, out, err = run(capsys, "--sweep", "--seconds", 0.1, "--runs", 1)
    assert code == 0, err
    assert [line.split(maxsplit=3)[3] for line in out.splitlines()[1:-1]] == [*map(switches.named, settings)]
    assert "2 of 3: MLX_PORT_LAUNCHES=2 MLX_PORT_KEYS=float32" in err


def test_a_setting_with_another_value_is_one_line(capsys, monkeypatch):
    monkeypatch.setattr(sweep, "SWEEP", ({switches.LAUNCHES: "3"},))
    code, out, err = run(capsys, "--sweep", "--seconds", 0.1)
    assert (code, out) == (6, "")
    assert "MLX_PORT_LAUNCHES: '3' is none of 1, 2, 4; unset it" in err
    assert run(capsys, "--sweep", "--report")[0] == 2


ROW = ["--random", "dia", "--seconds", 0.2, "--dtype", "float32", "--bits", "32", "--report"]


def test_a_row_that_is_too_slow_says_so(capsys, tiny, monkeypatch):
    monkeypatch.setattr(command, "ROW_SECONDS", 0)
    code, out, err = run(capsys, *ROW)
    assert (code, out) == (6, "")
    assert "bench: too slow here, 0 steps in 0 s" in err


def test_a_run_that_is_cut_shows_its_steps(capsys, tiny, monkeypatch):
    class Cut(Stopwatch):
        def is_set(self):
            super().is_set()
            return len(self.times) > 5

    monkeypatch.setattr(measure, "Stopwatch", Cut)
    code, out, err = run(capsys, *ROW)
    assert code == 0, err
    cells = [cell.strip() for cell in out.splitlines()[2].split("|")[1:-1]]
    assert "(" in cells[6]
    assert cells[8:10] == ["-", "-"]
    assert float(cells[10]) >= 0


def test_the_run_to_warm_up_counts_if_no_other_fits(tiny, monkeypatch):
    result = SimpleNamespace(audio_seconds=1.0, time_to_first_audio=2.0, peak_memory_usage=3)
    monkeypatch.setattr(measure, "load", lambda *_: object())
    monkeypatch.setattr(
        measure, "_speak", lambda *_: ([result], SimpleNamespace(taken=[4.0], busy=[1.0]), 9.0)
    )
    subject = choose_subject(None, "dia")
    planned = plan(subject, None, 0.2, batch=[1], dtypes=["float32"], bits=None)
    found = measure.measure(subject, planned, runs=3, seconds=5, tell=lambda line: None)
    assert found == [measure.Measured(4000.0, (4000.0, 4000.0), 1000.0, 1, 9.0, 2.0, 1.0, 3)]


def test_the_page_of_macs_is_current():
    page = (Path(macs.__file__).parents[1] / "docs/measured/macs.md").read_text("utf-8")
    assert page == macs.page()
    assert (macs.NONE in page) != any(macs.SENT.glob("*.json"))

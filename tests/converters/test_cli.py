"""The command: flags, one-line errors, exit codes, and output."""

import contextlib
import errno
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from converters import cli, convert
from mlx_port.commands import main as mlx_port_main
from tests.converters.folders import DAC_HF, DAC_PTH, GOLDEN, V_0626, V_0626_HF, left_in
from tts_core.command import runner

ROOT = Path(__file__).parents[2]


def run(*arguments: object) -> int:
    return runner.run(
        cli.convert_weights, [str(argument) for argument in arguments], debug="--debug" in arguments
    )


def error(capsys) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_converts_and_says_what_it_wrote(tmp_path, capsys):
    assert run("--hf-path", V_0626_HF, "--codec", DAC_HF, "--mlx-path", tmp_path / "out") == 0
    captured = capsys.readouterr()
    assert "dia: dia_transformers from v_0626_hf (model.safetensors): 47 tensors -> 47" in captured.out
    assert f"wrote {tmp_path / 'out'}: 3.69 MB, float32" in captured.out
    assert captured.err == ""
    assert (tmp_path / "out/conversion.json").is_file()


def test_a_conversion_is_planned_once(tmp_path, calls):
    calls.watch(convert, "outline", "write")
    assert run("--hf-path", V_0626_HF, "--codec", DAC_HF, "--mlx-path", tmp_path / "out") == 0
    assert calls == {"outline": 1, "write": 1}


def test_pickles_and_repeated_sources(tmp_path, capsys):
    sources = ("--hf-path", V_0626 / "dia-v1.pth", "--hf-path", DAC_PTH)
    assert run(*sources, "--mlx-path", tmp_path / "out", "--json") == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["parts"]["dac"]["map"] == "dac_descript"
    assert captured.err == ""


def test_dry_run_prints_the_plan_and_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ("--hf-path", V_0626_HF, "--codec", DAC_HF, "-q", "--q-group-size", "32", "--dry-run")
    assert run(*arguments) == 0
    said = capsys.readouterr().out
    assert "quantized: 17 layers, affine, 8 bits, groups of 32\n" in said
    assert "16 layers whose width is not a multiple of the group stay float32" in said
    assert "would write" in said
    assert run(*arguments, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["parts"]["dia"]["quantized_layers"] == 17
    assert left_in(tmp_path) == []


def test_copied_spellings(tmp_path):
    arguments = (
        "--model",
        V_0626_HF,
        f"--codec={DAC_HF}",
        "--mlx_path",
        tmp_path / "out",
        "--dry_run",
        "--q_bits=4",
        "-q",
    )
    assert run(*arguments, "--q_group_size", "32") == 0
    assert left_in(tmp_path) == []


@pytest.mark.parametrize(
    "arguments",
    [
        (V_0626_HF, DAC_HF, "out"),
        (V_0626_HF, "--mlx-path", "out", DAC_HF),
        ("--hf-path", V_0626_HF, "--codec", DAC_HF, "out"),
        (V_0626_HF, "out", "--codec", DAC_HF),
        (V_0626_HF, "--codec", DAC_HF, "--mlx-path", "out"),
    ],
)
def test_sources_and_destination_by_position(tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    assert run(*arguments) == 0
    assert left_in(tmp_path) == ["out"]


def test_the_embedded_voice_by_its_name(tmp_path, monkeypatch, capsys):
    pytest.importorskip("mlx.core", reason="MLX quantises")
    monkeypatch.chdir(tmp_path)
    assert run("embedded", "small", "-q", "--dtype", "bfloat16") == 0
    assert "quantized: 85 layers, affine, 8 bits" in capsys.readouterr().out
    (tmp_path / "embedded").mkdir()
    assert run("embedded", "other") == 3  # a folder of that name is meant
    assert "missing: weights of Dia" in error(capsys)


@pytest.mark.parametrize("flag", ["-h", "--help", "--version"])
def test_help_and_version(capsys, flag):
    assert run(flag) == 0
    out = capsys.readouterr().out
    assert out.startswith(
        "mlx-port " if flag == "--version" else "Usage: convert-weights [OPTIONS] SRC... DST"
    )


def test_quantise_then_dequantise(tmp_path, capsys):
    pytest.importorskip("mlx.core", reason="MLX quantises")
    assert (
        run(
            "--hf-path", V_0626_HF, "--codec", DAC_HF, "--mlx-path", tmp_path / "q", "-q", "--q-mode", "mxfp8"
        )
        == 0
    )
    assert run("--hf-path", tmp_path / "q", "--mlx-path", tmp_path / "d", "-d") == 0
    capsys.readouterr()
    assert run("--hf-path", tmp_path / "q", "--mlx-path", tmp_path / "x") == 2
    assert "already converted and quantized; -d dequantizes it" in error(capsys)
    assert run("--hf-path", tmp_path / "q", "--mlx-path", tmp_path / "x", "-q") == 2
    assert "already" in error(capsys)
    assert run("--hf-path", tmp_path / "d", "--mlx-path", tmp_path / "x", "-d") == 2
    assert "is not quantized" in error(capsys)
    assert left_in(tmp_path) == ["d", "q"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "SRC: missing; give a folder, a file or a hub id"),
        (["--hf-path"], 2, "--hf-path"),
        (["--hf-path", "./no/such/dir"], 3, "--hf-path: no/such/dir is not there"),
        (["--hf-path", "no-such-dir"], 3, "no-such-dir is not there"),
        (["--hf-path", V_0626_HF, "--codec", "./dac"], 3, "--codec: dac is not there"),
        (["--hf-path", "someone/model"], 3, "--hf-path: someone/model is not in the hub's cache"),
        (
            ["--hf-path", "x", "--dtype", "float64"],
            2,
            "--dtype: 'float64' cannot be used; choose from float32",
        ),
        (["--hf-path", "x", "--q-bits", "7", "-q"], 2, "--q-bits: '7' cannot be used; choose from 2"),
        (["--hf-path", "x", "--q-bits", "4"], 2, "--q-bits: only with -q"),
        (["--hf-path", "x", "-q", "-d"], 2, "-q, -d: give only one of them"),
        (
            ["--hf-path", "x", "-q", "--q-mode", "mxfp4", "--q-group-size", "64"],
            2,
            "--q-group-size: mxfp4 takes 32",
        ),
        (["--hf-path", "x", "--sped", "2"], 2, "--sped: no such flag; see convert-weights --help"),
        (["--hf-path", V_0626_HF, "--codec", DAC_HF, "--include_mbd"], 2, "--include-mbd: not for Dia"),
        (["--hf-path", V_0626_HF, "--config", "sizes.json"], 3, "--config: sizes.json is not there"),
        (["--hf-path", "x", "--max_tokens=3"], 2, "--max_tokens: no such flag"),
        (["--mlx-paht", "x"], 2, "--mlx-paht: no such flag; did you mean --mlx-path?"),
        (["x", "--q-group-size", "many"], 2, "--q-group-size: 'many' cannot be used; give a whole number"),
        (["x", "--dry-run=yes"], 2, "--dry-run: takes no value; leave it out"),
        (["./no/such/dir", "out"], 3, "SRC: no/such/dir is not there"),
        (["--hf-path", GOLDEN / "sampler", "--codec", DAC_HF], 3, "missing: weights of Dia"),
    ],
)
def test_mistakes_take_one_line_and_their_code(capsys, monkeypatch, tmp_path, arguments, code, said):
    monkeypatch.chdir(tmp_path)
    assert run(*arguments) == code
    assert said in error(capsys)
    assert left_in(tmp_path) == []


def test_progress_bar_only_on_a_terminal(tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    base = ("--hf-path", V_0626_HF, "--codec", DAC_HF, "--mlx-path")
    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        assert run(*base, tmp_path / str(shown)) == 0
        assert ("converting" in stream.getvalue()) == shown


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), 5, "memory: not enough; use a smaller"),
        (
            PermissionError(13, "Permission denied", "model.safetensors"),
            3,
            "model.safetensors: Permission denied",
        ),
        (RuntimeError(f"g++: {os.strerror(errno.ENOSPC)}"), 5, "disk: the folder of temporary files is full"),
        (FileNotFoundError(errno.ENOENT, "No such file"), 3, "the current folder was removed; change to"),
        (RuntimeError("two\nlines"), 6, "internal: RuntimeError: two lines; run again with --debug"),
    ],
)
def test_other_faults(monkeypatch, capsys, fault, code, said):
    def fail(*_):
        raise fault

    monkeypatch.setattr(cli, "_arrange", fail)
    assert run("--hf-path", "x") == code
    captured = capsys.readouterr().err.strip()
    assert said in captured.splitlines()[-1]


def test_an_error_that_nobody_can_read_keeps_its_code(monkeypatch):
    full = open("/dev/full", "w", buffering=1)  # noqa: SIM115  closed below
    monkeypatch.setattr(sys, "stderr", full)
    assert run("--hf-path", "./nothing", "--debug") == 3
    with contextlib.suppress(OSError):
        full.close()


@pytest.mark.parametrize("command", ["convert-weights", "mlx-port convert"])
@pytest.mark.parametrize(
    ("fault", "code"), [(BrokenPipeError(32, "Broken pipe"), 141), (SystemExit(143), 143)]
)
def test_a_reader_that_has_gone_and_a_signal_end_both_commands(monkeypatch, command, fault, code):
    def fail(*_):
        raise fault

    for stream in ("stdout", "stderr"):  # click replaces the streams of a closed pipe
        monkeypatch.setattr(sys, stream, getattr(sys, stream))
    monkeypatch.setattr(cli, "_arrange", fail)
    if command == "convert-weights":
        assert run("--hf-path", "x") == code
    else:
        assert mlx_port_main.run(["convert", "--hf-path", "x"]) == code


def test_help_imports_nothing_heavy():
    script = (
        "import sys\nfrom converters import cli\nfrom tts_core.command import runner\n"
        "runner.run(cli.convert_weights, ['--help'], debug=False)\n"
        "heavy = {'numpy', 'torch', 'mlx', 'huggingface_hub', 'tqdm', 'safetensors'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    shown = subprocess.run(
        [sys.executable, "-c", script], check=True, cwd=ROOT, capture_output=True, text=True
    ).stdout
    assert "--mlx-path" in shown
    assert "mlx_path" not in shown


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_nothing_behind(tmp_path, number, code):
    script = (
        "import signal, sys, time\nfrom converters import cli\nfrom converters.files import writer\n"
        # nohup and job runners start the tests with SIGINT ignored, and a child inherits that
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "original = writer.SafetensorsWriter.write\n"
        "def slow(self, name, tensor):\n"
        "    print('writing', flush=True); time.sleep(0.5); original(self, name, tensor)\n"
        "writer.SafetensorsWriter.write = slow\n"
        "cli.main(sys.argv[1:])"
    )
    flags = ["--hf-path", str(V_0626_HF), "--codec", str(DAC_HF), "--mlx-path", str(tmp_path / "out")]
    with subprocess.Popen(
        [sys.executable, "-c", script, *flags],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        assert len(left_in(tmp_path)) == 1
        os.kill(process.pid, number)
        process.communicate()
    assert process.returncode == code
    assert left_in(tmp_path) == []

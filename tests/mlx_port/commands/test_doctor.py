"""`mlx-port doctor`: this machine and simulated ones."""

import json
import subprocess
import sys

import pytest
import torch

from mlx_port.commands import doctor as cli_doctor
from mlx_port.commands.estimate import read_model
from tests.mlx_port.commands.running import run as run_command
from torch_ref import doctor as torch_doctor
from torch_ref.limits import Backend, active
from tts_core import extras
from tts_core.dia.config import DiaConfig
from tts_core.dia.footprint import PLAN, DiaJob
from tts_core.extras import EXTRAS, Extra
from tts_core.memory.machine import Machine

TF32 = "float32 (this device has no TF32; the variable affects others)"
MLX = {
    "version": "0.32.4",
    "backend": "metal",
    "device": "Apple M2",
    "memory_free": 12 * 10**9,
    "arithmetic": "float32",
    "tf32": TF32,
    "voice": "/cache/voice",
    "rows": {
        "float32": {"path": "kernel", "why": "a tile"},
        "bfloat16": {"path": "mlx", "why": "gemv_wide"},
        "float16": {"path": "mlx", "why": "gemv_wide"},
    },
    "fault": None,
}
RULE = {"id": "conv-65536", "condition": "a size over 65536", "effect": "error", "remedy": "cut it"}
TORCH = {
    "version": "2.13.0",
    "default": {"device": "mps", "dtype": "float32", "why": "because"},
    "devices": [
        {"device": "mps", "name": "Apple M2", "memory_free": 10**10, "dtype": "float32", "rules": [RULE]}
    ],
    "tf32": "off",
    "fault": None,
}
MISSING = {"fault": "not installed; pip install it"}


def run(capsys, *arguments):
    return run_command(capsys, "doctor", *arguments)


def install(monkeypatch, mlx=MLX, torch=TORCH):
    monkeypatch.setattr(cli_doctor, "probe", lambda modules: {"mlx": mlx, "torch": torch})


def test_this_machine_can_speak():
    """The installed command; its exit code is the verdict."""
    code = "import sys; from mlx_port.commands.main import main; sys.argv[1:] = ['doctor', '--json']; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["generation"]["possible"]
    assert found["mlx"]["fault"] is None
    assert found["mlx"]["blas"]["why"]
    assert found["mlx"]["arithmetic"] == "float32"
    assert "not M1 to M4, nor any CPU" in found["mlx"]["tf32"]
    assert found["torch"]["tf32"] == ("off" if torch.cuda.is_available() else "without effect: no CUDA")
    assert found["torch"]["fault"] is None
    assert found["torch"]["version"] == torch.__version__
    assert [device["device"] for device in found["torch"]["devices"]][-1] == "cpu"
    assert found["packages"]["numpy"]
    assert found["machine"]["memory_free"] > 0
    assert found["cache"]["free"] > 0


def test_a_dozen_lines(capsys, monkeypatch):
    """The verdict first; every extra is installed, or has the command that installs it."""
    install(monkeypatch)
    code, out, err = run(capsys)
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "speech      possible: MLX runs on metal"
    assert "MLX         0.32.4 on metal: works\n" in out
    assert " on mps: works\n" in out
    assert "conv-65536" not in out
    assert len(out.splitlines()) <= 14
    for name, extra in EXTRAS.items():
        assert (f"mlx-port[{name}]" in out) == (not extra.installed and name not in cli_doctor.BACKENDS)


def test_extras_that_lack(capsys, monkeypatch):
    install(monkeypatch)
    monkeypatch.setattr(Extra, "installed", property(lambda extra: "av" in extra.needs))
    out = run(capsys)[1]
    assert "extras      formats installed\n" in out
    for name in EXTRAS.keys() - {"formats"}:
        assert f"            {name}, for {EXTRAS[name].purpose}: {extras.install(name)}\n" in out
    found = json.loads(run(capsys, "--json")[1])["extras"]
    assert [name for name, extra in found.items() if extra["installed"]] == ["formats"]


def test_the_page_for_people(capsys, monkeypatch):
    install(monkeypatch)
    code, out, err = run(capsys, "--verbose")
    assert (code, err) == (0, "")
    heads = [line.split()[0] for line in out.splitlines() if line[0] != " "]
    assert heads == [
        "machine",
        "memory",
        "packages",
        "models",
        "cache",
        "voice",
        "MLX",
        "torch",
        "extras",
        "speech",
    ]
    assert "voice       /cache/voice" in out
    assert f"0.32.4, metal, Apple M2: works\n            12.0 GB free; TF32: {TF32}\n" in out
    assert "torch       2.13.0: works; TF32: off\n" in out
    assert "\n            two rows in float32: kernel, a tile\n" in out
    assert "\n            two rows in bfloat16, float16: mlx, gemv_wide\n" in out
    assert "takes mps in float32 (because)" in out
    assert "1 limit, respected by the layers" in out
    assert "conv-65536 (error): a size over 65536. cut it" in out
    assert out.splitlines()[-1] == "speech      possible: MLX runs on metal"


def test_the_blas_is_named_where_mlx_runs_on_the_cpu(capsys, monkeypatch):
    chosen = {"library": None, "why": "MLX's own, unoptimized: MLX_PORT_BLAS=off"}
    install(monkeypatch, {**MLX, "backend": "cpu", "blas": chosen})
    assert "\n            BLAS: MLX's own, unoptimized: MLX_PORT_BLAS=off\n" in run(capsys, "--verbose")[1]
    install(monkeypatch, {**MLX, "blas": chosen})
    assert "BLAS" not in run(capsys, "--verbose")[1]


@pytest.mark.parametrize(
    ("mlx", "torch", "code", "why"),
    [
        (MISSING, TORCH, 0, "use --backend torch"),
        ({**MLX, "fault": "RuntimeError: no kernel"}, TORCH, 0, "use --backend torch"),
        (MLX, MISSING, 0, "MLX runs on metal"),
        (MISSING, MISSING, 1, "neither MLX nor PyTorch works"),
        ({**MLX, "memory_free": 10**7}, TORCH, 1, "0.0 GB of memory are free, the embedded voice may take"),
        ({**MLX, "memory_free": None}, TORCH, 0, "MLX runs on metal"),
    ],
)
def test_the_verdict(capsys, monkeypatch, mlx, torch, code, why):
    install(monkeypatch, mlx, torch)
    found, out, _ = run(capsys)
    assert found == code
    assert why in out.splitlines()[0]
    found, out, _ = run(capsys, "--json")
    assert found == code
    assert json.loads(out)["generation"]["possible"] == (code == 0)


def test_the_memory_that_one_text_takes_is_enough(capsys, monkeypatch):
    """The embedded voice at its longest; a byte less is reported."""
    found = read_model(None, None)
    config = found.configs["dia"]
    assert isinstance(config, DiaConfig)
    job = DiaJob(config.max_text_bytes, config.max_frames, batch=1)
    needed = PLAN.footprint(found.configs, job, Machine("float32", "mlx-metal")).total
    for free, code in ((needed, 0), (needed - 1, 1)):
        install(monkeypatch, {**MLX, "memory_free": free})
        assert run(capsys)[0] == code


def test_missing_frameworks_are_told_with_the_remedy(capsys, monkeypatch):
    install(monkeypatch, MISSING, MISSING)
    assert "PyTorch     not installed; pip install it" in run(capsys)[1]
    out = run(capsys, "--verbose")[1]
    assert "MLX         not installed; pip install it" in out
    assert "without it the limits of its backends are unknown" in out


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("import os; os.abort()", "no message (signal 6)"),
        ("raise ValueError('broken driver')", "ValueError: broken driver (code 1)"),
        ("import mlx_not_there", "not installed; "),
        ("facts = lambda: {'fault': None}", None),
    ],
)
def test_a_framework_that_dies_takes_nobody_along(tmp_path, monkeypatch, code, fault):
    (tmp_path / "probed.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = cli_doctor.probe({"mlx": "probed"})["mlx"]["fault"]
    assert found == fault or found.startswith(fault)


def test_a_framework_that_hangs_is_given_up(tmp_path, monkeypatch):
    (tmp_path / "probed.py").write_text("import time; time.sleep(60)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(cli_doctor, "SECONDS", 0.5)
    assert cli_doctor.probe({"mlx": "probed"}) == {"mlx": {"fault": "no answer within 0.5 s"}}


@pytest.mark.parametrize(("version", "macos"), [("2.11.0", "14.5"), ("2.13.0", "15.2")])
def test_the_rules_of_a_mac_are_told(monkeypatch, version, macos):
    backend = Backend("mps", version, macos, "Apple M2")
    monkeypatch.setattr(torch_doctor.Backend, "here", classmethod(lambda cls, device: backend))
    monkeypatch.setattr(torch_doctor, "free_bytes", lambda device: 1)
    found = torch_doctor._describe(torch.device("mps"))
    assert (found["name"], found["dtype"]) == (f"Apple M2, macOS {macos}", "float32")
    assert [rule["id"] for rule in found["rules"]] == [rule.id for rule in active(backend)]
    assert all(rule["remedy"] for rule in found["rules"])
    ids = {rule["id"] for rule in found["rules"]}
    assert ("conv-65536" in ids) == (macos == "14.5")

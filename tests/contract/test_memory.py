"""Estimates of every model's memory: weights, jobs that take more, refusals that name what fits, peaks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from converters.convert import outline
from converters.published import open_published
from converters.rules.dequantize import Quantization
from tests.contract.speakers import SIDES, converted, every_model, every_side, folder
from tests.tiny.dia2 import write_published as write_dia2
from tests.tiny.networks import tiny, wide_config
from tests.tiny.qwen3 import write_published as write_qwen3
from tts_core import models
from tts_core.dia.footprint import DiaJob
from tts_core.dia2.footprint import Dia2Job
from tts_core.errors import ResourceError
from tts_core.mars5.footprint import Mars5Job
from tts_core.memory import weights
from tts_core.memory.fits import together
from tts_core.memory.machine import BACKENDS, Machine
from tts_core.metavoice.footprint import MetaVoiceJob
from tts_core.qwen3.footprint import Qwen3Job

EIGHT = {"group_size": 64, "bits": 8, "mode": "affine"}
NOTHING = "free some memory, or use a larger machine"


def configs(model: str) -> Any:
    """Of the first published repository."""
    return next(iter(models.MODELS[model].sizes.values()))


# folders whose weights are counted: small, some with widths that can be quantized
FOLDERS: Mapping[str, Callable[[], Path]] = {
    **{model: partial(folder, model) for model in models.NAMES},
    "dia2, wide": lambda: converted(lambda made: write_dia2(made / "x", tiny(wide_config(), seed=3))),
    **{
        f"qwen3, {mode}": lambda mode=mode: converted(lambda made: write_qwen3(made, mode))
        for mode in ("custom_voice", "voice_design")
    },
}
made = cache(lambda name: FOLDERS[name]())
# numbers in the rotary tables that a network keeps in float32; dia's at full size: tests/tts_core/dia
TABLES: Mapping[str, Callable[[Any], int]] = {
    "dia": lambda config: (
        config.encoder_config.max_position_embeddings * config.encoder_config.head_dim
        + config.decoder_config.max_position_embeddings
        * (config.decoder_config.head_dim + config.decoder_config.cross_head_dim)
    ),
    "dia2": lambda config: (
        (2 * config.max_context_steps + 1) * config.transformer.head_dim
        + (config.n_streams - 1) * config.depformer_has_rope * config.depformer.head_dim
    ),
    "qwen3": lambda config: 300 * config.talker.head_dim + config.n_codebooks * config.predictor.head_dim,
}


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("bits", [None, 8])
def test_weights_are_what_convert_writes(name: str, dtype: str, bits: int | None) -> None:
    """Besides the rotary tables of the networks that have some."""
    if bits and name in ("dia", "dia2"):
        pytest.skip("no width can be quantized; dia: tests/tts_core/dia/test_footprint.py")
    model, how = name.partition(",")[0], Quantization.of("affine", 32, bits) if bits else None
    whole = outline(open_published([made(name)], offline=True), dtype=dtype, quantization=how).parts
    copied, written, entry = 0, 0, whole[0].quantization_entry()
    for each in whole:
        if each.part.kind == "mbd":  # a band at a time, while it samples
            continue
        own = weights.weight_bytes(each.part.kind, each.part.config, dtype, each.quantization_entry())
        if each.kind.is_copied:  # as published: with sums of entries, and codebooks that nothing reads
            assert own < each.nbytes
            copied += own
        else:
            assert own == each.nbytes, each.part.kind
            written += each.nbytes
    parts = {each.part.kind: each.part.config for each in whole}
    plan, machine = models.MODELS[model].code().plan, Machine(dtype, "mlx-cpu", quantization=entry)
    found = plan.footprint(parts, plan.job(parts, None, None, 1), machine).weights
    tables = TABLES[model](parts[model]) if model in TABLES else 0
    assert found == written + copied + 4 * tables


# a job, and changes each of which takes more
LARGER: Mapping[str, tuple[Any, tuple[dict[str, Any], ...]]] = {
    "dia": (
        DiaJob(200, 860),
        ({"text_bytes": 1024}, {"frames": 3056}, {"batch": 8}, {"prompt_frames": 2000}, {"batch": 2}),
    ),
    "dia2": (Dia2Job(20), ({"frames": 900}, {"prefix_frames": 300}, {"batch": 64})),
    "mars5": (
        Mars5Job(900, 750, 450, deep=True),
        ({"frames": 3000}, {"prompt_frames": 3000}, {"batch": 9}),
    ),
    "metavoice": (MetaVoiceJob(100, 300), ({"frames": 900}, {"text_ids": 900}, {"batch": 3})),
    "qwen3": (
        Qwen3Job(20),
        ({"frames": 900}, {"prompt": 4000}, {"recording": 100}, {"batch": 64}),
    ),
}


@every_model
@pytest.mark.parametrize("backend", BACKENDS)
def test_more_takes_more(model: str, backend: str) -> None:
    job, changes = LARGER[model]
    machine, plan = (
        Machine("bfloat16", backend),
        partial(models.MODELS[model].code().plan.footprint, configs(model)),
    )
    guess = plan(job, machine)
    assert guess.total == guess.weights + guess.libraries + guess.row + guess.work
    assert plan(job, replace(machine, dtype="float32")).total > guess.total
    smaller, larger = (plan(job, replace(machine, measured=share)) for share in (0.5, 40))
    assert smaller.work <= guess.work < larger.work
    jobs = [replace(job, **larger) for larger in changes]
    for larger in jobs:
        assert plan(larger, machine).running >= guess.running, larger
    assert plan(together(jobs), machine).running > guess.running
    assert all(plan(together(jobs), machine).running >= plan(one, machine).running for one in jobs)


@pytest.mark.parametrize(
    ("model", "backend", "dtype", "how", "free", "fits", "not_offered"),
    [
        ("mars5", "torch-cpu", "float32", None, 3.0, "dtype bfloat16 (2.7", NOTHING),
        ("mars5", "torch-mps", "float32", None, 3.0, "dtype float16 (2.5", NOTHING),
        ("mars5", "mlx-metal", "bfloat16", None, 2.0, "convert-weights -q (1.", NOTHING),
        ("mars5", "mlx-metal", "bfloat16", EIGHT, 1.0, NOTHING, "convert"),
        ("metavoice", "torch-cpu", "float32", None, 3.0, "dtype bfloat16 (2.75 GB)", "dtype float16"),
        ("metavoice", "torch-mps", "float32", None, 3.0, "dtype float16 (2.59 GB)", "dtype bfloat16"),
        ("metavoice", "torch-cuda", "float32", None, 3.0, "bfloat16 (2.69 GB) or dtype float16", NOTHING),
        ("metavoice", "torch-cuda", "float16", None, 1.6, "convert-weights -q (1.5", "dtype"),
        ("metavoice", "mlx-metal", "bfloat16", None, 1.6, "convert-weights -q (1.4", "dtype float"),
        ("metavoice", "mlx-metal", "bfloat16", None, 1.0, "-q --q-bits 4 (0.8", "convert-weights -q ("),
        ("metavoice", "mlx-metal", "bfloat16", EIGHT, 1.0, NOTHING, "convert"),
        ("metavoice", "torch-cuda", "bfloat16", None, 0.1, NOTHING, "dtype float16"),
        ("qwen3", "mlx-metal", "float32", None, 3.0, "bfloat16", NOTHING),
        ("dia2", "torch-cpu", "float32", None, 6.0, "dtype bfloat16 (4.", NOTHING),
    ],
)
def test_loading_names_what_fits(
    model: str, backend: str, dtype: str, how: Any, free: float, fits: str, not_offered: str
) -> None:
    machine = Machine(dtype, backend, int(free * 1e9), how)
    with pytest.raises(ResourceError) as caught:
        models.MODELS[model].code().plan.check_loading(configs(model), machine)
    message = str(caught.value)
    assert message.startswith(f"memory: the model's weights in {dtype} take ")
    assert fits in message
    assert not_offered not in message
    for enough in (None, 10 * 10**9):
        models.MODELS[model].code().plan.check_loading(configs(model), replace(machine, free=enough))


@every_model
@every_side
def test_loading_refuses_what_does_not_fit_before_weights_are_read(
    model: str, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = SIDES[side]
    monkeypatch.setattr(f"{package}.loading.free_bytes", lambda *_: 10**4)
    monkeypatch.setattr(f"{package}.loading._fill", lambda *_: pytest.fail("weights were read"))
    how = {"device": "cpu"} if side == "torch" else {}
    with pytest.raises(ResourceError, match=r"^memory: .* weights in float32 take"):
        import_module(package).load(folder(model), **how)


# of benchmarks/memory.py, each in a process of its own
JOBS = {
    "dia": "60x50,250x300,100x100x8",
    "dia2": "40,40x4",
    "mars5": "200x75",
    "metavoice": "150x4,60xmbd",
    "qwen3": "40",
}


@pytest.mark.slow
@every_model
@every_side
def test_plans_are_above_measured_peaks_and_near_them(model: str, side: str) -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "benchmarks/memory.py", "--model", model, "--side", side]
    done = subprocess.run(
        [*command, "--jobs", JOBS[model]], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr

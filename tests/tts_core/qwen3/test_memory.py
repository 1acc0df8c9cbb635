"""Qwen3-TTS's memory: the plan of each dtype and quantization, and refusals that name one that fits."""

from dataclasses import replace
from typing import Any

import pytest

from converters.convert import outline
from converters.published import open_published
from converters.rules.dequantize import Quantization
from tests.tiny.qwen3 import codec_config, qwen3_config, write_published
from tts_core.codecs import qwen3_codec
from tts_core.errors import ResourceError
from tts_core.memory import weights
from tts_core.memory.machine import Machine
from tts_core.memory.terms import BACKENDS, Estimate
from tts_core.qwen3.config import MODES, Qwen3Config
from tts_core.qwen3.memory import (
    Qwen3Job,
    check_loading,
    check_running,
    estimate,
    weight_bytes,
)
from tts_core.qwen3.spec import MODEL

SMALL, LARGE = (MODEL.sizes[f"Qwen/Qwen3-TTS-12Hz-{size}-Base"] for size in ("0.6B", "1.7B"))
EIGHT, FOUR = ({"group_size": 64, "bits": bits, "mode": "affine"} for bits in (8, 4))
MINUTE = Qwen3Job(frames=750, prompt=300)


def plan(job: Qwen3Job = MINUTE, dtype: str = "bfloat16", backend: str = "mlx-metal", **how: Any) -> Estimate:
    return estimate(how.pop("configs", SMALL), job, Machine(dtype, backend, **how))


@pytest.mark.parametrize(
    ("configs", "dtype", "how", "gigabytes"),
    [
        (SMALL, "float32", None, 3.68),
        (SMALL, "bfloat16", None, 1.86),
        (SMALL, "bfloat16", EIGHT, 1.36),
        (SMALL, "bfloat16", FOUR, 1.07),
        (LARGE, "bfloat16", None, 3.90),
        (LARGE, "bfloat16", FOUR, 1.70),
    ],
)
def test_weights(configs: Any, dtype: str, how: Any, gigabytes: float) -> None:
    config = configs["qwen3"]
    assert isinstance(config, Qwen3Config)
    assert weight_bytes(config, dtype, how) == pytest.approx(gigabytes * 1e9, abs=2e7)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("dtype", "how"), [("float32", None), ("bfloat16", None), ("float16", ("affine", 32, 8))]
)
def test_weights_are_those_of_a_conversion(tmp_path, mode: str, dtype: str, how: Any) -> None:
    """Besides the tables of positions."""
    published = open_published(write_published(tmp_path / "qwen3", mode), offline=True)
    quantization = None if how is None else Quantization(*how)
    written = {
        each.part.kind: each for each in outline(published, dtype=dtype, quantization=quantization).plans
    }
    config = qwen3_config(mode)
    tables = 300 * config.talker.head_dim + config.n_codebooks * config.predictor.head_dim
    entry = written["qwen3"].quantization_entry()
    assert weight_bytes(config, dtype, entry) == written["qwen3"].nbytes + 4 * tables
    codec = weights.weight_bytes("qwen3_codec", codec_config(), "float32")
    assert codec == written["qwen3_codec"].nbytes


def test_the_cache() -> None:
    """28 layers and one that grows; a position of a text takes 115 kB in half precision."""
    position = 2 * 8 * 128 * 2
    assert plan()["cache"].bytes == 29 * position * 1280  # 1049 positions
    assert plan(replace(MINUTE, texts=3))["cache"].bytes == 3 * plan()["cache"].bytes
    assert plan(dtype="float32")["cache"].bytes == 2 * plan()["cache"].bytes


@pytest.mark.parametrize("backend", BACKENDS)
def test_more_work_takes_no_less(backend: str) -> None:
    least = plan(Qwen3Job(frames=20), backend=backend).running
    for more in (
        Qwen3Job(frames=900),
        Qwen3Job(frames=20, prompt=4000),
        Qwen3Job(frames=20, recording=100),
        Qwen3Job(frames=20, texts=64),
    ):
        assert plan(more, backend=backend).running > least, more
    jobs = [Qwen3Job(40, 90), Qwen3Job(20, 10, 70)]
    together = Qwen3Job.together(jobs)
    assert together == Qwen3Job(40, 90, 70, 2)
    assert all(plan(together, backend=backend).running >= plan(job, backend=backend).running for job in jobs)


def test_a_recording_is_heard_by_base_alone() -> None:
    """A long one: the speaker encoder's widest tensor, which no window limits, is larger than the codec's."""
    long = Qwen3Job(frames=20, prompt=400, recording=1500)
    custom = MODEL.sizes["Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice"]
    assert plan(long)["recordings"].bytes > 1.5 * plan(long, configs=custom)["recordings"].bytes


def test_a_refusal_names_what_fits() -> None:
    machine = Machine("float32", "mlx-metal", 3_000_000_000, policy=qwen3_codec.POLICY)
    with pytest.raises(ResourceError, match="bfloat16") as fault:
        check_loading(SMALL, machine)
    assert "float32" in str(fault.value)
    check_loading(SMALL, replace(machine, dtype="bfloat16"))
    check_loading(SMALL, replace(machine, free=None))
    job, half = Qwen3Job(frames=20_000), replace(machine, dtype="bfloat16", free=1_900_000_000)
    with pytest.raises(ResourceError, match=r"1600\.0 s of speech.*max_frames \d+"):
        check_running(SMALL, job, half)
    check_running(SMALL, job, replace(half, free=None))
    check_running(SMALL, replace(job, frames=500), half)

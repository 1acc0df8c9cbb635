"""Qwen3-TTS's memory: the plan of each dtype and quantization, and refusals that name one that fits."""

from dataclasses import replace
from typing import Any

import pytest

from tts_core.codecs import qwen3_codec
from tts_core.codecs.memory import GRAPHS
from tts_core.errors import ResourceError
from tts_core.memory.machine import Machine
from tts_core.memory.terms import Estimate
from tts_core.qwen3.memory import (
    Qwen3Job,
    check_loading,
    check_running,
    estimate,
    most_fed,
)
from tts_core.qwen3.model import MODEL

SMALL, LARGE = (MODEL.sizes[f"Qwen/Qwen3-TTS-12Hz-{size}-Base"] for size in ("0.6B", "1.7B"))
EIGHT, FOUR = ({"group_size": 64, "bits": bits, "mode": "affine"} for bits in (8, 4))
MINUTE = Qwen3Job(frames=750, prompt=300)


def plan(job: Qwen3Job = MINUTE, dtype: str = "bfloat16", backend: str = "mlx-metal", **how: Any) -> Estimate:
    return estimate(how.pop("configs", SMALL), job, Machine(dtype, backend, **how))


def test_the_cache() -> None:
    """28 layers and one that grows; a position of a text takes 115 kB in half precision."""
    position = 2 * 8 * 128 * 2
    assert plan()["cache"].bytes == 29 * position * 1280  # 1049 positions
    assert plan(replace(MINUTE, texts=3))["cache"].bytes == 3 * plan()["cache"].bytes
    assert plan(dtype="float32")["cache"].bytes == 2 * plan()["cache"].bytes


def test_the_cache_on_cuda_is_allocated_at_once() -> None:
    """With a position more than the plan counts; a prompt is read into a cache of its own, by 256 rows."""
    position = 2 * 8 * 128 * 2
    held = plan(backend="torch-cuda")
    assert held["cache"].bytes == 28 * position * 1050
    short = plan(replace(MINUTE, prompt=40, frames=1010), backend="torch-cuda")
    assert short["cache"].bytes == held["cache"].bytes
    assert held["prompt"].bytes - short["prompt"].bytes > 29 * position * 256 > 0.9 * short["prompt"].bytes
    assert plan(MINUTE, backend="torch-mps")["prompt"].bytes < 29 * position * 512


@pytest.mark.parametrize(
    ("frames", "recording", "fed"),
    [
        (1, 0, 1),
        (64, 0, 64),
        (100, 0, 64),
        (9999, 0, 64),
        (1, 5, 5),
        (20, 30, 30),
        (20, 300, 64),
    ],
)
def test_the_largest_call_of_the_codec(frames: int, recording: int, fed: int) -> None:
    """Windows have at most 64 frames, those of a recording before the speech too."""
    job = Qwen3Job(frames, recording=recording)
    assert most_fed(job, qwen3_codec.POLICY) == fed
    assert f"{fed} frames" in plan(job)["codec"].why


def test_captured_pieces_have_memory_beside_a_streams_windows() -> None:
    """A stream of 190 frames by itself has windows of 64; captured pieces have 12."""
    job = Qwen3Job(190)
    assert most_fed(job, qwen3_codec.POLICY, 12) == 64 + 12
    assert "76 frames" in plan(job, backend="torch-cuda")["codec"].why
    calls = [plan(job, backend="torch-cuda", codec_precision=one)["codec"] for one in ("float32", "tf32")]
    assert 6 * calls[1].bytes == 7 * calls[0].bytes


def test_a_measured_peak_on_cuda() -> None:
    """One H100's allocator, MB, decoded in float32; the bound is that of benchmarks/memory.py."""
    job = Qwen3Job(frames=100, prompt=40)
    guess = plan(job, backend="torch-cuda", codec_precision="float32")
    assert 2844 <= (guess.total - guess[GRAPHS].bytes) / 1e6 <= 1.06 * 2844


def test_a_recording_is_heard_by_base_alone() -> None:
    """A long one: the speaker encoder's widest tensor, which no window limits, is larger than the codec's."""
    long = Qwen3Job(frames=20, prompt=400, recording=1500)
    custom = MODEL.sizes["Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice"]
    assert plan(long)["recordings"].bytes > 1.5 * plan(long, configs=custom)["recordings"].bytes


def test_a_refusal_names_what_fits() -> None:
    machine = Machine("float32", "mlx-metal", 3_000_000_000, policy=qwen3_codec.POLICY)
    check_loading(SMALL, replace(machine, dtype="bfloat16"))
    job, half = Qwen3Job(frames=20_000), replace(machine, dtype="bfloat16", free=1_900_000_000)
    with pytest.raises(ResourceError, match=r"1600\.0 s of speech.*max_frames \d+"):
        check_running(SMALL, job, half)
    check_running(SMALL, job, replace(half, free=None))
    check_running(SMALL, replace(job, frames=500), half)

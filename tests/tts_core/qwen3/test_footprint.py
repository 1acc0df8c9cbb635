"""Qwen3-TTS's memory: the plan of each dtype and quantization, and refusals that name one that fits."""

from dataclasses import replace
from typing import Any

import pytest

from tts_core.codecs import qwen3_codec
from tts_core.codecs.qwen3_codec import QWEN3_CODEC_12HZ
from tts_core.errors import ResourceError
from tts_core.memory.footprint import Footprint
from tts_core.memory.machine import Machine
from tts_core.qwen3.footprint import PLAN, Qwen3Job
from tts_core.qwen3.model import MODEL

SMALL, LARGE = (MODEL.sizes[f"Qwen/Qwen3-TTS-12Hz-{size}-Base"] for size in ("0.6B", "1.7B"))
EIGHT, FOUR = ({"group_size": 64, "bits": bits, "mode": "affine"} for bits in (8, 4))
MINUTE = Qwen3Job(frames=750, prompt=300)


def plan(
    job: Qwen3Job = MINUTE, dtype: str = "bfloat16", backend: str = "mlx-metal", **how: Any
) -> Footprint:
    return PLAN.footprint(how.pop("configs", SMALL), job, Machine(dtype, backend, **how))


STATES = qwen3_codec.carried(QWEN3_CODEC_12HZ.decoder) * 4  # bytes of a stream


def test_the_cache() -> None:
    """28 layers and one that grows; a position of a text takes 115 kB in half precision."""
    position = 2 * 8 * 128 * 2
    assert plan().row == 29 * position * 1280 + 2 * STATES  # 1049 positions
    assert plan(replace(MINUTE, batch=3)).row == 3 * 29 * position * 1280 + 6 * STATES  # a call of 3 rows
    assert plan().minute == 750 * 28 * position


def test_the_cache_on_cuda_is_allocated_at_once() -> None:
    """With a position more than the plan counts; prompts are filled up to a power of two, twice: a captured
    pass has memory of its own.
    """
    position = 2 * 8 * 128 * 2
    held = plan(backend="torch-cuda")
    assert held.row == 28 * position * 1050 + 4 * STATES
    short = plan(replace(MINUTE, prompt=40, frames=1010), backend="torch-cuda")
    assert short.row == held.row
    assert held.graphs - short.graphs > (512 - 64) * 3 * 2 * 2048
    long = [plan(replace(MINUTE, prompt=one, frames=1), backend="torch-cuda").graphs for one in (1024, 4096)]
    assert long[0] == long[1], "longer ones are not captured"


def test_streams_that_share_calls_of_the_codec() -> None:
    """New states of all rows of a call, and the frames of all; on CPUs a call has one row."""
    three, long = replace(MINUTE, frames=20, batch=3), replace(MINUTE, frames=60)
    for backend, rows in (("mlx-metal", 3), ("torch-mps", 3), ("torch-cpu", 1)):
        sounds = [
            plan(replace(long, frames=20 * rows), backend=backend).sound,
            plan(three, backend=backend).sound,
        ]
        assert sounds[0] == sounds[1] > 0
    cache = plan(replace(three, batch=32)).row - plan(replace(three, batch=31)).row - 2 * STATES
    assert (
        plan(replace(three, batch=34)).row - plan(replace(three, batch=33)).row == cache + STATES
    )  # 32 rows


def test_prompts_are_read_in_passes_of_several() -> None:
    """Of 1024 positions at most, and with keys and values of their own before those are copied."""
    position, short = 2 * 8 * 128 * 2, Qwen3Job(frames=1, prompt=40)
    one, two, many, more = (
        plan(replace(short, batch=texts), backend="torch-mps").work for texts in (9, 18, 30, 300)
    )
    assert one > 28 * position * 40 * 9
    assert one < two < many
    step = plan(replace(short, batch=300, prompt=1), backend="torch-mps").work
    assert more - many <= step


def test_the_codec_is_bounded_by_its_windows() -> None:
    """Windows have at most 64 frames, those of a recording before the speech too."""
    assert plan(Qwen3Job(64)).sound == plan(Qwen3Job(9999)).sound == plan(Qwen3Job(1, recording=300)).sound
    assert plan(Qwen3Job(5, recording=30)).sound == plan(Qwen3Job(30)).sound < plan(Qwen3Job(64)).sound


def test_captured_calls_have_memory_beside_a_streams_windows() -> None:
    """A stream of 190 frames by itself has windows of 64; captured calls have 16, of several at most 128."""
    for texts, fed in ((1, 64 + 16), (3, 64 + 48), (32, 128 + 128)):
        job = Qwen3Job(190, batch=texts)
        calls = [plan(job, backend="torch-cuda", codec_precision=one).work for one in ("float32", "tf32")]
        assert calls[1] - calls[0] == 4 * qwen3_codec.widest(QWEN3_CODEC_12HZ.decoder, fed)


def test_a_measured_peak_on_cuda() -> None:
    """One H100's allocator, MB, decoded in float32; the bound is that of benchmarks/memory.py."""
    job = Qwen3Job(frames=100, prompt=40)
    guess = plan(job, backend="torch-cuda", codec_precision="float32")
    assert 2844 <= (guess.total - guess.graphs) / 1e6 <= 1.07 * 2844


def test_a_recording_is_heard_by_base_alone() -> None:
    """A long one: the speaker encoder's widest tensor, which no window limits, is larger than the codec's."""
    long = Qwen3Job(frames=20, prompt=400, recording=1500)
    custom = MODEL.sizes["Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice"]
    assert plan(long).running > 1.5 * plan(long, configs=custom).running


def test_a_refusal_names_what_fits() -> None:
    machine = Machine("float32", "mlx-metal", 3_000_000_000, policy=qwen3_codec.POLICY)
    PLAN.check_loading(SMALL, replace(machine, dtype="bfloat16"))
    job, half = Qwen3Job(frames=20_000), replace(machine, dtype="bfloat16", free=1_900_000_000)
    with pytest.raises(ResourceError, match=r"1600\.0 s of speech.*max_frames \d+"):
        PLAN.check_running(SMALL, job, half)
    PLAN.check_running(SMALL, job, replace(half, free=None))
    PLAN.check_running(SMALL, replace(job, frames=500), half)

"""MARS5's memory: weights, stages, and refusals that name what fits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tts_core.errors import ResourceError, UsageError
from tts_core.mars5.footprint import PLAN, Mars5Job
from tts_core.mars5.model import MODEL
from tts_core.memory.footprint import OVERLAPS, Footprint
from tts_core.memory.machine import BACKENDS, Machine

CONFIGS = next(iter(MODEL.sizes.values()))
FOUR = {"group_size": 64, "bits": 4, "mode": "affine"}
JOB = Mars5Job(prompt_ids=900, frames=750, prompt_frames=450, deep=True)


def take(job: Mars5Job = JOB, dtype: str = "float32", backend: str = "torch-cpu", **how: Any) -> Footprint:
    return PLAN.footprint(CONFIGS, job, Machine(dtype, backend, **how))


def test_a_quantized_copy_is_smaller_in_mlx_only() -> None:
    whole, half = take(), take(dtype="float16")
    assert half.weights < 0.52 * whole.weights
    four = take(dtype="float16", backend="mlx-metal", quantization=FOUR)
    assert four.weights < 0.5 * half.weights
    assert take(dtype="float16", quantization=FOUR) == half


def test_captured_steps_keep_the_text_of_every_timestep() -> None:
    job = replace(JOB, text_ids=80, timesteps=300, batch=2)
    with_text, without = (take(each, "bfloat16", "torch-cuda") for each in (job, replace(job, timesteps=0)))
    assert with_text.work - without.work == 300 * 2 * 81 * 1024 * 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_only_the_cache_of_several_texts_stays_beside_other_stages(backend: str) -> None:
    """So that a text's diffusion, which takes more than its steps, does not add to its cache."""
    long = replace(JOB, prompt_ids=300, frames=3000, max_len=400)
    alone, two = take(long, backend=backend), take(replace(long, batch=2), backend=backend)
    assert alone.running == two.work - two.graphs
    assert 1.9 * alone.row < two.row < 2 * alone.row
    assert two.running == two.row + two.work


def test_the_vocoder_is_beside_the_others_where_the_device_runs_it_there() -> None:
    """float32 rows per frame: a block's two inner ones, four of its width, 641 bins, and the transform's 1280
    samples. A window of at most 1024 frames reaches 29 to each side, and both transforms are matrices.
    """
    row = 2 * 1152 + 4 * 384 + 6 * 641 + 3 * 1280
    for frames, decoded in ((750, 750), (3000, 1024)):
        vocoder = 4 * ((decoded + 2 * 29) * row + 2 * 641 * 1280)
        job = replace(JOB, prompt_ids=100, frames=frames, batch=2, timesteps=0)
        beside, after = (take(job, backend=backend) for backend in ("torch-cuda", "torch-cpu"))
        assert beside.work - beside.graphs - after.work == vocoder
    assert OVERLAPS == ("torch-cuda",)


def test_what_takes_more() -> None:
    batch = replace(JOB, prompt_ids=100, batch=2)
    assert take(replace(JOB, max_len=3000)).row > take(replace(JOB, max_len=2000)).row
    assert take(replace(batch, guided=False)).work < take(batch).work
    assert take(replace(batch, deep=False)).work < take(batch).work
    assert take(dtype="bfloat16").row < 0.51 * take().row
    steps = Mars5Job(900, 20)
    assert take(replace(steps, prompt_ids=1200)).work > take(steps).work


# the diffusion takes the most memory; in the other case the cache
LONG = replace(JOB, frames=3000, max_len=200)


@pytest.mark.parametrize(
    ("job", "share", "fits"),
    [
        (LONG, 0.9, "max_frames 2"),
        (LONG, 0.9, "a shallow clone"),
        (LONG, 0.9, "cfg_scale 1"),
        (LONG, 1e-6, "free some memory"),
        (replace(JOB, prompt_ids=100, frames=100), 0.8, "dtype bfloat16"),
        (replace(JOB, prompt_ids=100, frames=100), 0.8, "generate_max_len_override 200"),
    ],
)
def test_running_names_what_fits(job: Mars5Job, share: float, fits: str) -> None:
    needed = take(job).running
    with pytest.raises(ResourceError, match=r"memory: one text of .* s of speech") as caught:
        PLAN.check_running(CONFIGS, job, Machine("float32", "torch-cpu", int(share * needed)))
    assert fits in str(caught.value)
    PLAN.check_running(CONFIGS, job, Machine("float32", "torch-cpu"))
    PLAN.check_running(CONFIGS, job, Machine("float32", "torch-cpu", needed))


def test_what_the_flags_ask_for() -> None:
    job = PLAN.job(CONFIGS, None, None, 1)
    assert (job.frames, job.prompt_frames, job.prompt_ids, job.deep) == (750, 900, 1050, True)
    assert PLAN.job(CONFIGS, "Hello there. " * 50, 4.0, 1).frames == 300
    assert PLAN.job(CONFIGS, "x" * 15, None, 1).frames == 75
    with pytest.raises(UsageError, match=r"seconds: 20 is more than this model's limit, 14\.7"):
        PLAN.job(CONFIGS, None, 20.0, 1)
    with pytest.raises(UsageError, match="text: there are no words"):
        PLAN.job(CONFIGS, "...", None, 1)

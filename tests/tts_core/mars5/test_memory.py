"""MARS5's memory: weights as converted, phases, and refusals that name what fits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tts_core.errors import ResourceError, UsageError
from tts_core.mars5.memory import Mars5Job, check_running, estimate
from tts_core.mars5.model import MODEL
from tts_core.mars5.outlook import plan
from tts_core.memory.machine import Machine
from tts_core.memory.terms import BACKENDS, OVERLAPS, Estimate

CONFIGS = next(iter(MODEL.sizes.values()))
FOUR = {"group_size": 64, "bits": 4, "mode": "affine"}
JOB = Mars5Job(prompt_ids=900, frames=750, prompt_frames=450, deep=True)


def take(job: Mars5Job = JOB, dtype: str = "float32", backend: str = "torch-cpu", **how: Any) -> Estimate:
    return estimate(CONFIGS, job, Machine(dtype, backend, **how))


def test_a_quantized_copy_is_smaller_in_mlx_only() -> None:
    assert take(dtype="float16")["AR"].bytes < 0.501 * take()["AR"].bytes
    four = take(dtype="float16", backend="mlx-metal", quantization=FOUR)
    assert four["AR"].bytes < 0.4 * take(dtype="float16")["AR"].bytes
    assert take(dtype="float16", quantization=FOUR)["AR"] == take(dtype="float16")["AR"]


def test_captured_steps_keep_the_text_of_every_timestep() -> None:
    job = replace(JOB, text_ids=80, timesteps=300)
    cuda, cpu = (take(job, "bfloat16", backend)["NAR"] for backend in ("torch-cuda", "torch-cpu"))
    assert cuda.bytes - cpu.bytes == 300 * 2 * 81 * 1024 * 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_phases_follow_one_another(backend: str) -> None:
    guess = take(backend=backend)
    beside = guess["vocoder"].bytes if backend in OVERLAPS else 0  # on a stream of its own
    assert guess.running == max(
        guess["voice"].bytes,
        guess["cache"].bytes + guess["activations"].bytes + beside,
        guess["NAR"].bytes + beside,
        guess["vocoder"].bytes,
    )
    names = ["AR", "others", "voice", "cache", "activations", "NAR", "vocoder", "libraries"]
    assert sorted(term.name for term in guess.terms) == sorted(names)
    assert backend in OVERLAPS or [term.name for term in guess.terms] == names


@pytest.mark.parametrize(("frames", "decoded"), [(750, 750), (3000, 1024)])
def test_the_vocoder_by_the_formula(frames: int, decoded: int) -> None:
    """float32 rows per frame: a block's two inner ones, four of its width, 641 bins, and the transform's 1280
    samples. A window reaches 29 frames to each side, and both transforms are matrices.
    """
    row = 2 * 1152 + 4 * 384 + 6 * 641 + 3 * 1280
    expected = 4 * ((decoded + 2 * 29) * row + 2 * 641 * 1280)
    for dtype in ("float32", "bfloat16"):
        assert take(replace(JOB, frames=frames), dtype)["vocoder"].bytes == expected


def test_prompts_take_activations_and_longer_sequences_the_cache() -> None:
    assert take(replace(JOB, prompt_ids=1200))["activations"].bytes > take()["activations"].bytes
    assert take(replace(JOB, max_len=3000))["cache"].bytes > take()["cache"].bytes


def test_a_run_is_smaller_without_guidance_or_words() -> None:
    assert take(replace(JOB, guided=False))["NAR"].bytes < take()["NAR"].bytes
    assert take(replace(JOB, deep=False))["NAR"].bytes < take()["NAR"].bytes
    assert take(dtype="bfloat16")["cache"].bytes < 0.51 * take()["cache"].bytes


# the diffusion takes the most memory; in the other case the cache
LONG = replace(JOB, frames=3000, max_len=200)


@pytest.mark.parametrize(
    ("job", "share", "fits"),
    [
        (LONG, 0.9, "pieces half as long"),
        (LONG, 0.9, "a shallow clone"),
        (LONG, 0.9, "cfg_scale 1"),
        (LONG, 1e-6, "free some memory"),
        (replace(JOB, prompt_ids=100, frames=100), 0.8, "dtype bfloat16"),
        (replace(JOB, prompt_ids=100, frames=100), 0.8, "generate_max_len_override 200"),
    ],
)
def test_running_names_what_fits(job: Mars5Job, share: float, fits: str) -> None:
    needed = take(job).running
    with pytest.raises(ResourceError, match=r"memory: .* s of speech and 6\.0 s of reference") as caught:
        check_running(CONFIGS, job, Machine("float32", "torch-cpu", int(share * needed)))
    assert fits in str(caught.value)
    check_running(CONFIGS, job, Machine("float32", "torch-cpu"))
    check_running(CONFIGS, job, Machine("float32", "torch-cpu", needed))


def test_what_the_flags_ask_for() -> None:
    job = plan(CONFIGS, None, None, 1)
    assert (job.frames, job.prompt_frames, job.prompt_ids, job.deep) == (750, 900, 1050, True)
    assert plan(CONFIGS, "Hello there. " * 50, 4.0, 1).frames == 300
    assert plan(CONFIGS, "x" * 15, None, 1).frames == 75
    with pytest.raises(UsageError, match=r"seconds: 20 is more than the longest piece of MARS5, 14\.7"):
        plan(CONFIGS, None, 20.0, 1)
    with pytest.raises(UsageError, match="text: there are no words"):
        plan(CONFIGS, "...", None, 1)

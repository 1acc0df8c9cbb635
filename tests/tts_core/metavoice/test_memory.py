"""MetaVoice's memory: the plan of each dtype and quantization, and refusals that name one that fits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tts_core.codecs.mbd import PUBLISHED_UNET, MbdBandConfig, MbdConfig, MbdScheduleConfig
from tts_core.errors import ResourceError
from tts_core.memory.machine import Machine
from tts_core.memory.terms import BACKENDS, OVERLAPS, Estimate
from tts_core.metavoice.memory import (
    MetaVoiceJob,
    check_running,
    estimate,
    places_that_fit,
)
from tts_core.metavoice.model import MODEL

CONFIGS = dict(next(iter(MODEL.sizes.values())))
SCHEDULE = MbdScheduleConfig(1e-5, 2.9e-2, 7.5, 1000, 5.0, 1.0)
WITH_BANDS = CONFIGS | {"mbd": MbdConfig(24_000, (MbdBandConfig(PUBLISHED_UNET, SCHEDULE, None),) * 4)}
EIGHT, FOUR = ({"group_size": 64, "bits": bits, "mode": "affine"} for bits in (8, 4))
FULL = MetaVoiceJob(text_ids=100, frames=974)  # 2048 positions
TYPICAL = MetaVoiceJob(text_ids=100, frames=300)  # 700


def plan(
    job: MetaVoiceJob = FULL, dtype: str = "bfloat16", backend: str = "mlx-metal", **how: Any
) -> Estimate:
    return estimate(how.pop("configs", CONFIGS), job, Machine(dtype, backend, **how))


def test_all_other_parts() -> None:
    """EnCodec is read only for the diffusion, without the training averages in its file."""
    guess = plan()
    assert guess["others"].bytes == pytest.approx((0.058 + 0.0057 + 0.040) * 1e9, abs=2e6)
    with_bands = plan(configs=WITH_BANDS)["others"].bytes
    assert with_bands - guess["others"].bytes == pytest.approx(0.0931e9 - 4 * 32 * 1024 * 129, abs=1e6)


@pytest.mark.parametrize(
    ("job", "dtype", "gigabytes"),
    [(FULL, "float32", 1.61), (FULL, "float16", 0.805), (TYPICAL, "bfloat16", 0.275)],
)
def test_the_cache(job: MetaVoiceJob, dtype: str, gigabytes: float) -> None:
    """393 kB per position of two rows in half precision; one row without guidance."""
    assert plan(job, dtype)["cache"].bytes == pytest.approx(gigabytes * 1e9, rel=3e-3)
    assert plan(replace(job, rows=1), dtype)["cache"].bytes * 2 == plan(job, dtype)["cache"].bytes
    assert plan(replace(job, batch=3), dtype)["cache"].bytes == 3 * plan(job, dtype)["cache"].bytes


def test_a_band_at_a_time() -> None:
    """1.15 GB of weights while one network samples; four would take 4.6."""
    job = replace(TYPICAL, decoder="mbd", frames=150)
    guess = plan(job, configs=WITH_BANDS, backend="torch-cuda")
    assert 1.15e9 < guess["decoder"].bytes < 1.6e9
    assert guess.running == guess["decoder"].bytes


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_second_stage_draws_on_the_host(backend: str) -> None:
    """28 bytes a logit, which count where the host's memory is the device's, too."""
    beside = plan(backend="torch-cuda")["second stage"].bytes
    drawn = 0 if backend.endswith("cuda") else 6 * 974 * 1025 * 28
    assert plan(backend=backend)["second stage"].bytes == beside + drawn


@pytest.mark.parametrize("backend", BACKENDS)
def test_phases_follow_one_another(backend: str) -> None:
    guess = plan(replace(FULL, batch=4), backend=backend)
    assert isinstance(guess, Estimate)
    beside = guess["decoder"].bytes if backend in OVERLAPS else 0  # on a stream of its own
    assert guess.running == guess["cache"].bytes + guess["activations"].bytes + beside
    assert {term.name for term in guess.terms} >= {"first stage", "cache", "second stage", "decoder", "voice"}


@pytest.mark.parametrize(
    ("job", "free", "fits"),
    [
        (replace(FULL, batch=4), 1.7e9, "a batch_size of 1 (1.6"),
        (FULL, 0.9e9, "dtype bfloat16 (0.8"),
        (replace(TYPICAL, decoder="mbd"), 0.7e9, "decoder vocos (0.5"),
        (FULL, 0.84e9, "pieces half as long (0.8"),
        (FULL, 1e6, "free some memory, or use a larger machine"),
    ],
)
def test_running_names_what_fits(job: MetaVoiceJob, free: float, fits: str) -> None:
    configs = WITH_BANDS if job.decoder == "mbd" else CONFIGS
    with pytest.raises(ResourceError) as caught:
        check_running(configs, job, Machine("float32", "torch-cuda", int(free)))
    message = str(caught.value)
    assert fits in message
    assert "\n" not in message
    check_running(configs, job, Machine("float32", "torch-cuda"))


def test_places_of_a_running_batch() -> None:
    """As many as asked for, or as many as 0.8 GB each leave room for; the first has a row more."""

    def places(free: int | None) -> int:
        return places_that_fit(CONFIGS, 8, Machine("bfloat16", "mlx-metal", free))

    assert places(None) == 8
    found = [places(free) for free in range(2 * 10**9, 10 * 10**9, 10**9)]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (2, 8)
    text = 2 * 24 * 2 * 2 * 2048 * 2047  # layers, rows, keys and values, bytes, width, positions
    assert sum(4 * text <= free and places(free) < 4 for free in range(4 * text, 5 * text, text // 10)) < 6
    with pytest.raises(ResourceError, match=r"^memory: a batch of one text take"):
        places(text)

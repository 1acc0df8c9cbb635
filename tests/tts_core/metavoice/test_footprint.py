"""MetaVoice's memory: the plan of each dtype and quantization, and refusals that name one that fits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tts_core.codecs.mbd import PUBLISHED_UNET, MbdBandConfig, MbdConfig, MbdScheduleConfig
from tts_core.errors import ResourceError
from tts_core.memory.footprint import Footprint
from tts_core.memory.machine import BACKENDS, Machine
from tts_core.memory.weights import weight_bytes
from tts_core.metavoice.footprint import PLAN, MetaVoiceJob
from tts_core.metavoice.model import MODEL

CONFIGS = dict(next(iter(MODEL.sizes.values())))
SCHEDULE = MbdScheduleConfig(1e-5, 2.9e-2, 7.5, 1000, 5.0, 1.0)
WITH_BANDS = CONFIGS | {"mbd": MbdConfig(24_000, (MbdBandConfig(PUBLISHED_UNET, SCHEDULE, None),) * 4)}
EIGHT, FOUR = ({"group_size": 64, "bits": bits, "mode": "affine"} for bits in (8, 4))
FULL = MetaVoiceJob(text_ids=100, frames=974)  # 2048 positions
TYPICAL = MetaVoiceJob(text_ids=100, frames=300)  # 700


def plan(
    job: MetaVoiceJob = FULL, dtype: str = "bfloat16", backend: str = "mlx-metal", **how: Any
) -> Footprint:
    return PLAN.footprint(how.pop("configs", CONFIGS), job, Machine(dtype, backend, **how))


def test_all_other_parts() -> None:
    """EnCodec is read only for the diffusion, without the training averages in its file."""
    first = weight_bytes("metavoice", CONFIGS["metavoice"], "bfloat16")
    assert plan().weights - first == pytest.approx((0.058 + 0.0057 + 0.040) * 1e9, abs=2e6)
    more = plan(configs=WITH_BANDS).weights - plan().weights
    assert more == pytest.approx(0.0931e9 - 4 * 32 * 1024 * 129, abs=1e6)


@pytest.mark.parametrize(
    ("job", "dtype", "gigabytes"),
    [(FULL, "float32", 1.61), (FULL, "float16", 0.805), (TYPICAL, "bfloat16", 0.275)],
)
def test_the_cache(job: MetaVoiceJob, dtype: str, gigabytes: float) -> None:
    """393 kB per position of two rows in half precision; one row without guidance."""
    assert plan(job, dtype).row == pytest.approx(gigabytes * 1e9, rel=3e-3)
    assert plan(replace(job, rows=1), dtype).row * 2 == plan(job, dtype).row
    assert plan(replace(job, batch=3), dtype).row == 3 * plan(job, dtype).row


def test_a_band_at_a_time() -> None:
    """1.15 GB of weights while one network samples; four would take 4.6."""
    job = replace(TYPICAL, mbd=True, frames=150)
    guess = plan(job, configs=WITH_BANDS, backend="torch-cuda")
    assert 1.15e9 < guess.running < 1.6e9
    assert guess.running > plan(replace(job, mbd=False), backend="torch-cuda").running


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_second_stage_draws_on_the_host(backend: str) -> None:
    """28 bytes a logit, which count where the host's memory is the device's, too."""
    job, logits = MetaVoiceJob(1, 300, rows=1), 6 * 1025
    drawn = logits * (2 * 1024 * 4 + 300 * (24 + 28))
    if backend.endswith("cuda"):
        assert plan(job, backend=backend).running < drawn
    else:
        assert plan(job, backend=backend).running == drawn


@pytest.mark.parametrize(
    ("job", "free", "fits"),
    [
        (replace(FULL, batch=4), 1.7e9, "a batch of 1 (1.6"),
        (FULL, 0.9e9, "dtype bfloat16 (0.8"),
        (replace(TYPICAL, mbd=True), 0.7e9, "decoder vocos (0.6"),
        (FULL, 0.84e9, "max_frames "),
        (FULL, 1e6, "free some memory, or use a larger machine"),
    ],
)
def test_running_names_what_fits(job: MetaVoiceJob, free: float, fits: str) -> None:
    configs = WITH_BANDS if job.mbd else CONFIGS
    with pytest.raises(ResourceError) as caught:
        PLAN.check_running(configs, job, Machine("float32", "torch-cuda", int(free)))
    message = str(caught.value)
    assert fits in message
    assert "\n" not in message
    PLAN.check_running(configs, job, Machine("float32", "torch-cuda"))

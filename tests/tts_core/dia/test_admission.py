"""Admission to a running batch by the memory plan."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.hosts import LateHost
from tts_core.codecs.dac import DAC_44KHZ
from tts_core.codecs.policy import own
from tts_core.dia.admission import DiaAdmission
from tts_core.dia.memory import DiaJob, estimate
from tts_core.dia.model import DIA_0626
from tts_core.errors import ResourceError
from tts_core.memory.machine import Machine

JOB = DiaJob(text_bytes=200, frames=600)
LONGEST = DiaJob(text_bytes=DIA_0626.max_text_bytes, frames=DIA_0626.max_frames)


CONFIGS = {"dia": DIA_0626, "dac": DAC_44KHZ}


def takes(job: DiaJob, backend: str) -> int:
    return estimate(CONFIGS, job, Machine("bfloat16", backend)).running


def admission(backend: str, free: int | None, places: int = 9) -> DiaAdmission:
    return DiaAdmission(CONFIGS, LateHost(backend, "bfloat16", free), places, None, own(backend))


def asked(job: DiaJob) -> Any:
    return SimpleNamespace(job=lambda: job)


@pytest.mark.parametrize("backend", ["torch-cuda", "mlx-metal"])
def test_a_batch_of_fixed_size_has_the_places_that_fit(backend: str) -> None:
    """Then everything fits that the model can speak; texts that run may still allocate what is not cache."""
    four = takes(DiaJob(LONGEST.text_bytes, LONGEST.frames, batch=4), backend)
    assert admission(backend, four).places == 4
    assert admission(backend, four - 1).places == 3
    assert admission(backend, None).places == 9
    found = admission(backend, four)
    assert found.fits(asked(LONGEST), [asked(JOB)] * 3, four)
    assert not found.fits(asked(JOB), [asked(JOB)] * 4, 0)
    assert found.promised([]) == 0
    assert 0 < found.promised([asked(JOB)]) < takes(JOB, backend)
    with pytest.raises(ResourceError, match=r"max_frames|codec windows"):
        admission(backend, takes(LONGEST, backend) - 1)


def test_a_growing_batch_counts_each_text_at_its_longest() -> None:
    backend = "torch-cpu"
    three = takes(DiaJob(JOB.text_bytes, JOB.frames, batch=3), backend)
    found, one = admission(backend, three, 5), asked(JOB)
    assert found.places == 5
    assert found.fits(one, [], 0)
    assert found.fits(one, [one] * 2, 0)
    assert not found.fits(one, [one] * 2, 1)
    assert not found.fits(one, [one] * 3, 0)
    assert found.promised([one] * 3) == three
    assert admission(backend, None, 100).fits(one, [one] * 99, 0)
    assert not admission(backend, None).fits(one, [one] * 9, 0)


def test_what_never_fits_is_refused_in_an_empty_batch() -> None:
    found = admission("torch-cpu", takes(JOB, "torch-cpu"))
    with pytest.raises(ResourceError, match="max_frames"):
        found.fits(asked(LONGEST), [], 0)
    assert found.fits(asked(JOB), [], 0)
    assert not found.fits(asked(LONGEST), [asked(JOB)], 0)

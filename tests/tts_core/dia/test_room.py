"""Admission to a running batch by the memory plan."""

from __future__ import annotations

import pytest

from tests.hosts import LateHost
from tts_core.codecs.dac import DAC_44KHZ
from tts_core.codecs.policy import own
from tts_core.dia.memory import DiaJob, estimate
from tts_core.dia.room import Room
from tts_core.dia.spec import DIA_0626
from tts_core.errors import ResourceError
from tts_core.memory.machine import Machine

JOB = DiaJob(text_bytes=200, frames=600)
LONGEST = DiaJob(text_bytes=DIA_0626.max_text_bytes, frames=DIA_0626.max_frames)


CONFIGS = {"dia": DIA_0626, "dac": DAC_44KHZ}


def takes(job: DiaJob, backend: str) -> int:
    return estimate(CONFIGS, job, Machine("bfloat16", backend)).running


def room(backend: str, free: int | None) -> Room:
    return Room(CONFIGS, own(backend), LateHost(backend, "bfloat16", free), LONGEST)


@pytest.mark.parametrize("backend", ["torch-cuda", "mlx-metal"])
def test_a_batch_of_fixed_size_has_the_places_that_fit(backend: str) -> None:
    """Then everything fits that the model can speak; texts that run may still allocate what is not cache."""
    four = takes(DiaJob(LONGEST.text_bytes, LONGEST.frames, batch=4), backend)
    assert room(backend, four).places(9) == 4
    assert room(backend, four - 1).places(9) == 3
    assert room(backend, None).places(9) == 9
    assert room(backend, four).fits([JOB] * 3, LONGEST, promised=four)
    assert room(backend, four).promised([]) == 0
    assert 0 < room(backend, four).promised([JOB]) < takes(JOB, backend)
    with pytest.raises(ResourceError, match=r"max_frames|codec windows"):
        room(backend, takes(LONGEST, backend) - 1).places(9)


def test_a_growing_batch_counts_each_text_at_its_longest() -> None:
    backend = "torch-cpu"
    three = takes(DiaJob(JOB.text_bytes, JOB.frames, batch=3), backend)
    found = room(backend, three)
    assert found.places(5) == 5
    assert found.fits([], JOB, promised=0)
    assert found.fits([JOB] * 2, JOB, promised=0)
    assert not found.fits([JOB] * 2, JOB, promised=1)
    assert not found.fits([JOB] * 3, JOB, promised=0)
    assert found.promised([JOB] * 3) == three
    assert room(backend, None).fits([JOB] * 99, JOB, promised=0)


def test_what_never_fits_is_refused_in_an_empty_batch() -> None:
    found = room("torch-cpu", takes(JOB, "torch-cpu"))
    with pytest.raises(ResourceError, match="max_frames"):
        found.fits([], LONGEST, promised=0)
    assert found.fits([], JOB, promised=0)
    assert not found.fits([JOB], LONGEST, promised=0)

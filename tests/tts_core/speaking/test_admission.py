"""Admission to a running batch by the memory plan, of invented sizes and of every model's plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.hosts import LateHost
from tts_core import models
from tts_core.errors import ResourceError, UsageError
from tts_core.memory.fits import Plan, together
from tts_core.memory.footprint import Footprint
from tts_core.memory.machine import BACKENDS, Machine
from tts_core.speaking.admission import Admission


@dataclass(frozen=True)
class InventedJob:
    """Ten bytes a frame of each text, and as many of work as the longest has frames."""

    frames: int
    batch: int = 1


def invented(configs: Any, job: InventedJob, machine: Machine) -> Footprint:
    return Footprint(100, 0, 10 * job.frames * job.batch, job.frames, 2 * job.frames, 0)


PLAN = Plan(invented, lambda *_: InventedJob(1), lambda _: 1.0, fixed=("torch-cuda",))
SHORT, LONG = InventedJob(10), InventedJob(30)


def asked(job: Any) -> Any:
    return SimpleNamespace(job=lambda: job)


def admission(backend: str, free: int | None, places: int = 5, **how: Any) -> Admission:
    host = LateHost(backend, "bfloat16", free)
    return Admission(PLAN, {}, host, places, lambda texts: replace(LONG, batch=texts), **how)


def test_a_batch_of_fixed_size_has_the_places_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then everything fits that the model can speak; texts that run may still allocate what is not rows."""
    assert admission("torch-cuda", 3 * 300 + 30).places == 3
    assert admission("torch-cuda", 3 * 300 + 29).places == 2
    assert admission("torch-cuda", None).places == 5
    found, one = admission("torch-cuda", 3 * 300 + 30), asked(SHORT)
    monkeypatch.setattr(found.host, "free", 0)  # what the slots took does not count again
    assert found.fits(asked(LONG), [one] * 2, 10**9)
    assert not found.fits(one, [one] * 3, 0)
    assert (found.promised([]), found.promised([one, asked(LONG)])) == (0, 30)
    with pytest.raises(ResourceError, match=r"^memory: one text .* max_frames 29, 29\.0 s"):
        admission("torch-cuda", 329)


def test_texts_whose_stages_come_in_turn_are_checked_one_by_one() -> None:
    """Against what is free now, beside the bytes that other models may allocate."""
    plan, host = replace(PLAN, serial=True), LateHost("torch-cuda", "bfloat16", 1000)
    found = Admission(plan, {}, host, 3, lambda texts: replace(SHORT, batch=texts))
    one = asked(SHORT)
    assert found.promised([one, asked(LONG)]) == 60
    host.free = 70
    assert found.fits(asked(LONG), [one], 10)
    assert not found.fits(asked(LONG), [one], 11)
    host.free = 59
    with pytest.raises(ResourceError, match=r"^memory: one text of 30\.0 s .* max_frames 29, "):
        found.fits(asked(LONG), [one], 0)


def test_a_growing_batch_counts_each_text_at_its_longest() -> None:
    three = 3 * 100 + 10
    found, one = admission("torch-cpu", three), asked(SHORT)
    assert found.places == 5
    assert found.fits(one, [], 0)
    assert found.fits(one, [one] * 2, 0)
    assert not found.fits(one, [one] * 2, 1)
    assert not found.fits(one, [one] * 3, 0)
    assert found.promised([one] * 3) == three
    assert admission("torch-cpu", None, 100).fits(one, [one] * 99, 0)
    assert not admission("torch-cpu", None).fits(one, [one] * 5, 0)


def test_what_never_fits_is_refused_in_an_empty_batch() -> None:
    found = admission("torch-cpu", 110)
    with pytest.raises(ResourceError, match="max_frames 10,"):
        found.fits(asked(LONG), [], 0)
    assert found.fits(asked(SHORT), [], 0)
    assert not found.fits(asked(LONG), [asked(SHORT)], 0)


def test_rows_that_a_model_counts_itself() -> None:
    found = admission("torch-cpu", None, holds=lambda ones: len(ones) < 3)
    one = asked(SHORT)
    assert found.fits(one, [one], 0)
    assert not found.fits(one, [one] * 2, 0)


@pytest.mark.parametrize("places", [0, -1, "2"])
def test_places_that_no_batch_has(places: Any) -> None:
    with pytest.raises(UsageError, match=r"places: .* is not a number of texts"):
        admission("torch-cpu", None, places)


@pytest.mark.parametrize("model", models.NAMES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_models_batch_has_the_places_that_fit(model: str, backend: str) -> None:
    plan, configs = models.MODELS[model].code().plan, next(iter(models.MODELS[model].sizes.values()))
    job = plan.job(configs, None, None, 1)

    def whole(texts: int) -> Any:
        return replace(job, batch=texts)

    def takes(texts: int) -> int:
        return plan.footprint(configs, whole(texts), Machine("bfloat16", backend)).running

    for free, fixed in ((takes(4), 4), (takes(4) - 1, 3)):
        found = Admission(plan, configs, LateHost(backend, "bfloat16", free), 9, whole)
        assert found.places == (fixed if backend in plan.fixed else 9)
        one = asked(job)
        assert found.fits(one, [one] * (fixed - 1), 0)
        assert not found.fits(one, [one] * fixed, 0)


def test_jobs_together() -> None:
    assert together([SHORT, replace(LONG, batch=2)]) == InventedJob(30, 3)

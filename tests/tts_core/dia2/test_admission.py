"""Places of Dia2's running batch where its slots allocate all of their memory at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.hosts import LateHost
from tts_core.codecs.mimi import MIMI_24KHZ, POLICY
from tts_core.dia2.admission import Dia2Admission
from tts_core.dia2.memory import Dia2Job, estimate
from tts_core.dia2.model import DIA2_2B
from tts_core.errors import ResourceError
from tts_core.memory.machine import Machine

CONFIGS = {"dia2": DIA2_2B, "mimi": MIMI_24KHZ}
JOB = Dia2Job(frames=100)
NOTHING: Any = None


def engine(backend: str, free: int | None) -> Any:
    host, network = LateHost(backend, "bfloat16", free), SimpleNamespace(config=DIA2_2B)
    return SimpleNamespace(configs=CONFIGS, policy=POLICY, host=host, network=network)


def needed(texts: int) -> int:
    job = Dia2Job(JOB.frames, texts=texts)
    return estimate(CONFIGS, job, Machine("bfloat16", "torch-cuda", policy=POLICY)).running


@pytest.mark.parametrize(("free", "places"), [(needed(3), 3), (needed(4) - 1, 3), (needed(9), 8), (None, 8)])
def test_as_many_places_as_fit(free: int | None, places: int) -> None:
    """They are known to fit: what the slots took does not count again."""
    made = engine("torch-cuda", free)
    admission = Dia2Admission(made, 8, JOB, POLICY)
    assert (admission.places, admission.rows) == (places, JOB.frames + DIA2_2B.longest_delay - 1)
    made.host.free = 0
    assert admission.fits(NOTHING, [NOTHING] * (places - 1), 0)
    assert not admission.fits(NOTHING, [NOTHING] * places, 0)


def test_elsewhere_texts_take_memory_as_they_come() -> None:
    assert Dia2Admission(engine("mlx-metal", 1), 8, JOB, POLICY).places == 8


def test_not_even_one() -> None:
    with pytest.raises(ResourceError):
        Dia2Admission(engine("torch-cuda", needed(1) - 1), 8, JOB, POLICY)

"""Each text of a running batch takes as many rows as the one with the most."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tts_core.memory.machine import Machine
from tts_core.metavoice.admission import MetaVoiceAdmission
from tts_core.metavoice.sampling import FirstStageSampling

ONE, TWO, THREE = (
    SimpleNamespace(sampling=sampling)
    for sampling in (
        FirstStageSampling(cfg_scale=1.0),
        FirstStageSampling(),
        FirstStageSampling(text_cfg_scale=1.5, rule="slow"),
    )
)


class Rows(MetaVoiceAdmission):
    """Four places on eight rows, and memory for any request."""

    def __init__(self) -> None:
        self.places, self.rows, self.machine = 4, 8, Machine("float32", "torch-cpu", 1 << 40)
        self.host: Any = SimpleNamespace(machine=lambda: self.machine)
        self._needed = lambda request: 0


def test_rows_are_those_of_the_text_with_the_most() -> None:
    assert [one.sampling.rows for one in (ONE, TWO, THREE)] == [1, 2, 3]
    found: Any = Rows()
    assert found.fits(TWO, [TWO, ONE, TWO], 0)
    assert not found.fits(TWO, [TWO, ONE, TWO, TWO], 0)
    assert found.fits(THREE, [TWO], 0)
    assert not found.fits(THREE, [TWO, ONE], 0)
    assert not found.fits(ONE, [THREE, ONE], 0)

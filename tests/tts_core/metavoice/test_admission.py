"""Each text of a running batch takes as many rows as the one with the most."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from tts_core.memory.machine import Machine
from tts_core.metavoice.admission import MetaVoiceAdmission
from tts_core.metavoice.inputs import FirstStageSampling
from tts_core.speaking.admission import PeakAdmission


@dataclass(eq=False)
class SampledRequest:
    """Of a request, its sampling."""

    sampling: FirstStageSampling


ONE, TWO, THREE = (
    SampledRequest(FirstStageSampling(cfg_scale=1.0)),
    SampledRequest(FirstStageSampling()),
    SampledRequest(FirstStageSampling(text_cfg_scale=1.5, rule="slow")),
)


class Rows(MetaVoiceAdmission):
    """Four places on eight rows, and memory for any request."""

    def __init__(self) -> None:
        self.rows, self.machine = 8, Machine("float32", "torch-cpu", 1 << 40)
        host: Any = SimpleNamespace(machine=lambda: self.machine)
        PeakAdmission.__init__(self, host, 4, lambda request: 0)


def test_rows_are_those_of_the_text_with_the_most() -> None:
    assert [one.sampling.rows for one in (ONE, TWO, THREE)] == [1, 2, 3]
    found: Any = Rows()
    assert found.fits(TWO, [TWO, ONE, TWO], 0)
    assert not found.fits(TWO, [TWO, ONE, TWO, TWO], 0)
    assert found.fits(THREE, [TWO], 0)
    assert not found.fits(THREE, [TWO, ONE], 0)
    assert not found.fits(ONE, [THREE, ONE], 0)

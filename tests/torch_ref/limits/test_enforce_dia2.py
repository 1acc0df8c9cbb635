"""Dia2 of full widths under the rules of MPS: our layers break no rule, and change no number."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.golden.dia2_bench import build
from tests.tiny.dia2 import dia2_config, dia2_weights, tokenizer
from tests.torch_ref.limits.stand_ins import stand_ins
from torch_ref.dia2.dia2 import Dia2
from torch_ref.dia2.slots import Dia2Slots
from torch_ref.limits import Backend, enforce
from tts_core.dia2.run import Dia2Run
from tts_core.dia2.sampling import Dia2Choice, Dia2Sampling
from tts_core.dia2.script import Reader
from tts_core.dia2.slots import Dia2Joining
from tts_core.dia2.spec import DIA2_2B
from tts_core.nn.noise import HostNoise

pytestmark = pytest.mark.rest

# full widths; more layers would repeat the same calls
WIDE = replace(
    DIA2_2B,
    transformer=replace(DIA2_2B.transformer, num_hidden_layers=1),
    depformer=replace(DIA2_2B.depformer, num_hidden_layers=1),
)
USUAL = Dia2Sampling(Dia2Choice(2.0, 50, 0.6, 50), Dia2Choice(2.0, 50, 0.8, 50))


@pytest.fixture(scope="module")
def network() -> Dia2:
    """A network of shapes only: no weight is allocated."""
    with torch.device("meta"):
        return Dia2(WIDE).to("meta").eval()


@pytest.mark.parametrize("backend", stand_ins("without LSTM"), ids=str)
def test_full_size(network: Dia2, backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long prefix, then a step with all codes."""
    streams = DIA2_2B.n_streams
    before = np.zeros((700, 2 + streams), np.int32)
    with enforce(backend) as watch:
        slots = Dia2Slots(network)
        monkeypatch.setattr(slots.host, "to_host", lambda x: np.zeros(x.shape, np.int64))  # shapes only
        slots.join(0, Dia2Joining(before, 699, USUAL, HostNoise(1)))
        assert slots.act({0: before[0]}) == {0: 0}
        assert slots.read(slots.draw({0: (2, 3)}))[0].shape == (streams,)
    assert watch.calls > 0


@pytest.mark.parametrize(("release", "macos"), [("2.11.0", "14.5"), ("2.15.0", "26.2")])
def test_the_same_numbers_under_the_rules(release: str, macos: str) -> None:
    side = build("torch", dia2_weights(dia2_config(), seed=1))
    entries = Reader.of(tokenizer(), 2, 12.5).entries("[S1] Hello there.")
    greedy = Dia2Sampling(Dia2Choice(2.0, 9, 0, 0), Dia2Choice(2.0, 9, 0, 0))

    def run() -> np.ndarray:
        return side.speak(Dia2Run(dia2_config(), entries), greedy).run.grid.codes

    plain = run()
    with enforce(Backend("mps", release, macos)) as watch:
        np.testing.assert_array_equal(run(), plain)
    assert watch.calls > 0

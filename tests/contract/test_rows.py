"""Streams that share calls of the codec: fewer calls, the same codes, and samples within rounding.

On a CPU every row is a call of its own, so these tests lift that rule. Listeners hear faster than anybody
speaks (`hurried`: every window is late), or have all the time (windows wait for others).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.contract.arrivals import serve
from tests.contract.speakers import alone, assert_same, every_side, mixed, request, speaker, windows
from tests.contract.test_short_of_memory import ERRORS, run
from tts_core.codecs import dac_calls
from tts_core.codecs.policy import CALL
from tts_core.results import Meter
from tts_core.speaking import net

TEXT = "The old inn by the river is near, and the road goes on to the hills. " * 8
FRAMES = 60
CAUSAL = ["dia2", "qwen3"]
every_stream = pytest.mark.parametrize("model", ["dia", *CAUSAL])


class Calls:
    """Calls of a codec: rows and frames of each; before_call is called with their number."""

    def __init__(self, codec: Any, monkeypatch: pytest.MonkeyPatch):
        self.shapes = list[tuple[int, int]]()
        self.before_call: Callable[[int], None] = lambda number: None
        decode = codec.decode_window

        def decode_window(codes: Any, *given: Any) -> Any:
            self.shapes.append((codes.shape[0], codes.shape[2]))
            self.before_call(len(self.shapes))
            return decode(codes, *given)

        monkeypatch.setattr(codec, "decode_window", decode_window)

    def taken(self) -> list[tuple[int, int]]:
        """Return the shapes since the last time."""
        shapes, self.shapes = self.shapes, []
        return shapes


def share(monkeypatch: pytest.MonkeyPatch, *, hurried: bool) -> None:
    for module in (net, dac_calls):
        monkeypatch.setattr(module, "ONE_BY_ONE", ())
    monkeypatch.setattr(Meter, "lead", property(lambda own: 0.0 if hurried or not own.samples else 1e9))


def long_ones(model: str, count: int, frames: int = FRAMES) -> list[Any]:
    return [request(model, "torch", TEXT, max_frames=frames, seed=1) for _ in range(count)]


@every_stream
@every_side
@pytest.mark.rest
@pytest.mark.parametrize("hurried", [True, False])
def test_requests_come_and_go(model: str, side: str, hurried: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other texts, voices, settings and lengths, which join at steps of their own; some leave."""
    asked = mixed(model, side)
    expected = [alone(model, side, one) for one in asked]
    share(monkeypatch, hurried=hurried)
    calls = Calls(speaker(model, side).engine.codec, monkeypatch)
    for seed, leaving in ((1, 0.0), (2, 0.01)):
        session = speaker(model, side).session(4)
        for place, found in serve(session, asked, seed=seed, leaving=leaving).items():
            assert_same(found, expected[place], windows=windows(model))
        session.close()
    shapes = {shape for shape in calls.taken() if shape[0] > 1}
    assert shapes or model == "dia"  # whose texts here have two windows
    for rows, frames in shapes:
        assert rows in (2, 4)
        assert rows * frames <= CALL
        assert model == "dia" or frames in (1, 2, 4, 8, 16)


@every_stream
def test_streams_take_fewer_calls(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four that begin together take about those of one: DAC's windows are shorter where calls are shared.

    The products are those of all, and of ends that are filled up.
    """
    asked = long_ones(model, 4)
    calls = Calls(speaker(model, "torch").engine.codec, monkeypatch)

    def products(asked: list[Any]) -> tuple[int, list[Any]]:
        session = speaker(model, "torch").session(len(asked))
        with FlopCounterMode(display=False) as counter:
            spoken = run(session, asked)
        assert [one.codes.shape[1] for one in spoken] == [FRAMES] * len(asked)
        session.close()
        counts = counter.get_flop_counts()["Global"]
        return sum(count for name, count in counts.items() if "convolution" in str(name)), spoken

    products(asked[:1])  # encodes the voice
    calls.taken()
    (single, _), one = products(asked[:1]), calls.taken()
    found, apart = products(asked)
    assert found == 4 * single
    assert len(calls.taken()) == 4 * len(one)
    share(monkeypatch, hurried=False)
    found, spoken = products(asked)
    assert 4 * single <= found <= (1 + 11 / FRAMES) * 4 * single
    assert len(calls.taken()) < 2 * len(one)
    for one_of, wanted in zip(spoken, apart, strict=True):
        assert_same(one_of, wanted, windows=windows(model))


@pytest.mark.parametrize("model", CAUSAL)
def test_streams_of_other_ages_share_calls(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows wait for those of streams that began three frames earlier."""
    share(monkeypatch, hurried=False)
    asked, session = long_ones(model, 4), speaker(model, "torch").session(4)
    calls = Calls(speaker(model, "torch").engine.codec, monkeypatch)
    while asked or session.running:
        if asked:
            session.join(asked.pop())
        for _ in range(3):
            session.step()
    session.close()
    shapes = calls.taken()
    assert sum(rows * frames for rows, frames in shapes) <= 4 * (FRAMES + 11)
    assert len(shapes) < 0.7 * sum(rows for rows, _ in shapes)


@every_stream
@every_side
@pytest.mark.rest
def test_a_shared_call_that_fails(model: str, side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever call lacks memory, its halves are made from the states before it."""
    asked = [request(model, side, "The inn is near.", seed=seed) for seed in range(3)]
    expected = [alone(model, side, one) for one in asked]
    share(monkeypatch, hurried=False)
    calls = Calls(speaker(model, side).engine.codec, monkeypatch)
    session = speaker(model, side).session(3)
    run(session, asked)
    shapes = calls.taken()
    places = [number for number, (rows, _) in enumerate(shapes, start=1) if rows > 1]
    for place in places:

        def fail(number: int, place: int = place) -> None:
            if number == place:
                raise ERRORS[side]

        calls.before_call = fail
        for found, wanted in zip(run(session, asked), expected, strict=True):
            assert_same(found, wanted, windows=windows(model))
        assert len(calls.taken()) > len(shapes)
    session.close()


@pytest.mark.parametrize("model", CAUSAL)
def test_a_wrong_sound_of_one_row(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows of the call are decoded again, from the states before it."""
    asked, wrong = long_ones(model, 2, 40), 3
    expected = [alone(model, "torch", one) for one in asked]
    share(monkeypatch, hurried=True)
    codec, shapes = speaker(model, "torch").engine.codec, list[int]()
    decode = codec.decode_window

    def decode_window(codes: torch.Tensor, *given: Any) -> Any:
        samples, states = decode(codes, *given)
        shapes.append(codes.shape[0])
        if len(shapes) == wrong:
            assert codes.shape[0] == 2
            samples = samples * torch.tensor([[0.0], [1.0]])
            states = [state._replace(arrays=tuple(x * torch.nan for x in state.arrays)) for state in states]
        return samples, states

    monkeypatch.setattr(codec, "decode_window", decode_window)
    session = speaker(model, "torch").session(2)
    for found, wanted in zip(run(session, asked), expected, strict=True):
        assert_same(found, wanted, windows=windows(model))
    assert shapes[wrong : wrong + 2] == [1, 1]
    session.close()

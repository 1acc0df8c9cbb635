"""What the ONNX judges feed their networks and make of the answers; the networks are stand-ins."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tts_core.judges import dnsmos, voicing
from tts_core.judges.dnsmos import DnsMos
from tts_core.judges.voicing import VoiceActivity, Voicing

Answer = Callable[[dict[str, np.ndarray]], list[np.ndarray]]


class StandIn:
    def __init__(self, answer: Answer):
        self.answer, self.fed = answer, list[dict[str, np.ndarray]]()

    def run(self, outputs: None, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        self.fed.append(inputs)
        return self.answer(inputs)


def stand_in(monkeypatch: pytest.MonkeyPatch, module: Any, answer: Answer) -> StandIn:
    network = StandIn(answer)
    monkeypatch.setattr(module, "session", lambda path: network)
    return network


def test_probabilities_carry_state_and_context(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        return [np.array([[inputs["state"][0, 0, 0]]], np.float32), inputs["state"] + 1]

    network = stand_in(monkeypatch, voicing, answer)
    samples = np.arange(1, 1100, dtype=np.float32)
    np.testing.assert_array_equal(VoiceActivity(b"").probabilities(samples), [0, 1, 2])
    fed = [inputs["input"][0] for inputs in network.fed]
    np.testing.assert_array_equal(fed[0], [*np.zeros(64), *samples[:512]])
    np.testing.assert_array_equal(fed[1], samples[448:1024])
    np.testing.assert_array_equal(fed[2], [*samples[960:], *np.zeros(3 * 512 - 1099)])
    assert all(inputs["sr"] == 16000 for inputs in network.fed)


@pytest.mark.parametrize(
    ("spoken", "samples", "found"),
    [
        ([0, 0, 1, 1, 0, 0, 0, 1, 0], 9 * 512, Voicing(0.064, 0.032, 0.096, 0.096)),
        ([1, 1], 2 * 512 - 5, Voicing(0, 0, 0, 0.064)),
        ([0, 0, 0], 1536, Voicing(0.096, 0, 0, 0)),
    ],
)
def test_voicing(monkeypatch: pytest.MonkeyPatch, spoken: list[int], samples: int, found: Voicing) -> None:
    stand_in(monkeypatch, voicing, lambda inputs: [])
    judge = VoiceActivity(b"")
    monkeypatch.setattr(judge, "probabilities", lambda samples: np.array(spoken, np.float32))
    assert judge.voicing(np.zeros(samples, np.float32)) == pytest.approx(found)


def test_dnsmos_takes_sections_a_second_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    network = stand_in(
        monkeypatch, dnsmos, lambda inputs: [np.array([[3.0, 2.0, 1.0]]) + inputs["input_1"][0, 0] / 16000]
    )
    section = dnsmos.SECTION
    scores = DnsMos(b"").score(np.arange(section + 36000, dtype=np.float32))
    assert [inputs["input_1"].shape for inputs in network.fed] == [(1, section)] * 2
    assert [inputs["input_1"][0, 0] for inputs in network.fed] == [0, 16000]
    raw = np.array([[3.0, 2.0, 1.0], [4.0, 3.0, 2.0]])
    polynomials = (dnsmos.SPEECH, dnsmos.BACKGROUND, dnsmos.OVERALL)
    wanted = [np.mean([a * x * x + b * x + c for x in raw[:, i]]) for i, (a, b, c) in enumerate(polynomials)]
    assert scores == pytest.approx(wanted)


def test_dnsmos_repeats_a_short_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    network = stand_in(monkeypatch, dnsmos, lambda inputs: [np.array([[1.0, 1.0, 1.0]])])
    DnsMos(b"").score(np.arange(50000, dtype=np.float32))
    fed = network.fed[0]["input_1"][0]
    np.testing.assert_array_equal(fed, np.tile(np.arange(50000), 4)[: dnsmos.SECTION])

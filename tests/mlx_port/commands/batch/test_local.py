"""Worker processes: fed, listened to, replaced when they die."""

import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from mlx_port.commands.batch.local import devices, speak_locally
from tts_core.bulk.outcome import Outcome
from tts_core.bulk.rows import TextRow
from tts_core.errors import GenerationError, ResourceError
from tts_core.processes import DEATHS


class Echo:
    """A worker that says where it ran; "die" kills it."""

    def speak(self, rows: Iterable[tuple[TextRow, str]]) -> Iterator[Outcome]:
        for row, key in rows:
            if row.text == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            place = os.environ.get("CUDA_VISIBLE_DEVICES", "")
            yield Outcome(row.number, key, row.id, fields={"place": place, "process": os.getpid()})


def broken() -> Echo:
    raise ResourceError("memory: too little")


def keyed(*texts: str) -> list[tuple[TextRow, str]]:
    return [(TextRow(number, f"r{number}", text), f"k{number}") for number, text in enumerate(texts)]


def test_every_row_is_spoken_once_on_some_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    places = [{"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "1"}]
    found = list(speak_locally(Echo, keyed(*"abcdefgh"), places))
    assert sorted(one.number for one in found) == list(range(8))
    assert {one.fields["place"] for one in found} <= {"0", "1"}
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_a_worker_that_dies_costs_the_row_that_it_spoke() -> None:
    found = {one.id: one for one in speak_locally(Echo, keyed("a", "die", "b", "die", "c"), [{}])}
    assert [found[name].error for name in ("r0", "r2", "r4")] == [None] * 3
    assert found["r1"].error == "the worker died (exit code -9)"
    assert len({found[name].fields["process"] for name in ("r0", "r2", "r4")}) == 3


def test_any_number_of_deaths_is_borne_with_a_spoken_row_between() -> None:
    found = list(speak_locally(Echo, keyed(*["die", "a"] * DEATHS), [{}]))
    assert sum(one.error is None for one in found) == DEATHS
    assert len(found) == 2 * DEATHS


def test_workers_that_keep_dying_end_the_run() -> None:
    found: list[Outcome] = []
    with pytest.raises(GenerationError, match="3 workers died"):
        found.extend(speak_locally(Echo, keyed(*["die"] * 5), [{}]))
    assert len(found) == DEATHS


def test_a_model_that_does_not_load_is_said_once() -> None:
    with pytest.raises(ResourceError, match="memory: too little"):
        list(speak_locally(broken, keyed("a"), [{}]))


@pytest.mark.parametrize(
    ("given", "there", "found"),
    [
        ("2,3", [], [{"CUDA_VISIBLE_DEVICES": "2"}, {"CUDA_VISIBLE_DEVICES": "3"}]),
        ("2,,3,", [], [{"CUDA_VISIBLE_DEVICES": "2"}, {"CUDA_VISIBLE_DEVICES": "3"}]),
        (
            "",
            ["nvidia0", "nvidia1", "nvidiactl"],
            [{"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "1"}],
        ),
        ("", ["null"], [{}]),
    ],
)
def test_devices(
    monkeypatch: pytest.MonkeyPatch, given: str, there: list[str], found: list[dict[str, str]]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    monkeypatch.setattr(os, "listdir", lambda folder: there)
    assert devices("torch") == found


def test_a_machine_without_devices_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(os, "listdir", lambda folder: Path("/nowhere").stat())
    assert devices("torch") == [{}]

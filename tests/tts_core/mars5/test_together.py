"""Which diffusions share a call: the first ones, by rows, memory and backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.hosts import LateHost
from tests.metal_errors import LATE
from tests.tts_core.mars5.test_memory import CONFIGS
from tts_core.errors import ResourceError
from tts_core.mars5 import together
from tts_core.mars5.memory import Mars5Job, diffusion_bytes, estimate
from tts_core.mars5.together import MOST_ROWS, Diffusions, alike, in_line
from tts_core.memory.machine import Machine

JOB = Mars5Job(prompt_ids=20, frames=100, text_ids=10)
BYTES = diffusion_bytes(CONFIGS, JOB, Machine("bfloat16", "torch-cuda"))


class Run:
    """A diffusion of so many timesteps."""

    def __init__(self, timesteps: int):
        self.left = timesteps

    @property
    def done(self) -> bool:
        return not self.left

    def result(self) -> np.ndarray:
        raise AssertionError("the session's own")


class Engine:
    """calls: the runs of each call that was built.  most: of a call, beyond which it lacks memory.
    late: the error of the next call, which comes after it.
    """

    late: str | None = None

    def __init__(self, backend: str = "torch-cuda", free: int | None = None, most: int = 9):
        self.configs, self.calls, self.most = CONFIGS, list[list[Run]](), most
        self.host = LateHost(backend, "bfloat16", free)

    def together(self, runs: Sequence[Run]) -> Any:
        self.calls.append([*runs])

        def timestep() -> None:
            if len(runs) > self.most:
                runs[0].left -= 1  # it had a call of its own
                raise RuntimeError("[malloc] Unable to allocate 123 bytes.")
            for run in runs:
                run.left -= 1
            if self.late is not None:
                self.host.errors.append(RuntimeError(self.late))
                self.late = None

        return timestep


def opened(engine: Engine, *timesteps: int, job: Mars5Job = JOB) -> Diffusions[str]:
    diffusions: Diffusions[str] = Diffusions(engine)  # pyright: ignore[reportArgumentType]
    for owner, count in zip("abcdefgh", timesteps, strict=False):
        diffusions.add(owner, job, lambda count=count: Run(count))
    return diffusions


def ended(diffusions: Diffusions[str], steps: int) -> list[str]:
    """Owners whose diffusions end at each step; in capitals if they fail."""
    return [
        "".join(
            owner.upper() if isinstance(run, ResourceError) else owner for owner, run in diffusions.step()
        )
        for _ in range(steps)
    ]


def test_a_call_is_built_only_when_its_runs_change() -> None:
    engine = Engine()
    diffusions = opened(engine, 2, 4)
    assert ended(diffusions, 1) == [""]
    diffusions.add("c", JOB, lambda: Run(2))
    assert ended(diffusions, 4) == ["a", "c", "b", ""]
    assert [len(runs) for runs in engine.calls] == [2, 3, 2, 1]
    assert diffusions.queue == []
    assert ended(diffusions, 1) == [""]


def test_one_that_leaves_is_in_no_later_call() -> None:
    engine = Engine()
    diffusions = opened(engine, 3, 3)
    diffusions.step()
    diffusions.drop("a")
    assert ended(diffusions, 2) == ["", "b"]
    assert [len(runs) for runs in engine.calls] == [2, 1]
    assert engine.calls[0][0].left == 2


@pytest.mark.parametrize("backend", together.ONE_BY_ONE)
def test_a_cpu_runs_one_by_one_in_order(backend: str) -> None:
    engine = Engine(backend)
    assert ended(opened(engine, 3, 1), 4) == ["", "", "a", "b"]
    assert [len(runs) for runs in engine.calls] == [1, 1]


@pytest.mark.parametrize(("free", "most"), [(None, 4), (4 * BYTES, 4), (4 * BYTES - 1, 3), (0, 1)])
def test_those_share_a_call_whose_memory_is_there(free: int | None, most: int) -> None:
    """One by itself always runs: its memory was checked before."""
    engine = Engine(free=free)
    diffusions = opened(engine, 2, 2, 2, 2)
    diffusions.step()
    assert len(engine.calls[0]) == most
    assert diffusions.promised == most * BYTES
    assert sum(each.run is not None for each in diffusions.queue) == most


def test_a_call_has_so_many_rows_and_no_more() -> None:
    third = Mars5Job(prompt_ids=20, frames=MOST_ROWS // 6, text_ids=10)
    assert 3 * third.rows <= MOST_ROWS < 4 * third.rows
    engine = Engine()
    opened(engine, 2, 2, 2, 2, job=third).step()
    assert len(engine.calls[0]) == 3
    engine = Engine()
    opened(engine, 2, 2, job=Mars5Job(prompt_ids=20, frames=MOST_ROWS, text_ids=10)).step()
    assert len(engine.calls[0]) == 1


def test_a_call_that_lacks_memory_is_made_for_half_of_its_runs() -> None:
    """Until one has left; every run has its own number of timesteps."""
    engine = Engine(most=2)
    diffusions = opened(engine, 3, 4, 4, 2, 2)
    assert ended(diffusions, 10) == ["", "", "a", "", "b", "", "", "c", "", "de"]
    assert [len(runs) for runs in engine.calls] == [5, 2, 4, 2, 3, 1, 2]


def test_one_that_lacks_memory_by_itself_fails_and_the_others_go_on() -> None:
    engine = Engine(most=0)
    diffusions = opened(engine, 5, 2, 2)
    assert ended(diffusions, 2) == ["", "A"]
    engine.most = 2
    assert ended(diffusions, 2) == ["", "bc"]


@pytest.mark.parametrize("words", LATE)
def test_what_a_call_computed_before_its_error_came_is_computed_again(words: str) -> None:
    """By half of the runs, from the beginning: their codes may be wrong."""
    engine = Engine()
    diffusions = opened(engine, 3, 3, 3)
    assert ended(diffusions, 1) == [""]
    engine.host.errors += [RuntimeError(words), RuntimeError(words)]
    with pytest.raises(RuntimeError) as caught:
        diffusions.step()  # of an earlier call: the whole batch ends
    assert str(caught.value) == words
    engine.late = words
    assert ended(diffusions, 1) == [""]
    assert ended(diffusions, 6) == ["", "", "a", "", "", "bc"]
    assert [len(runs) for runs in engine.calls] == [3, 1, 2]
    assert not set(engine.calls[0]) & {run for runs in engine.calls[1:] for run in runs}


def test_one_that_cannot_begin_waits_for_the_others() -> None:
    """Its memory may be there once they have left; if not, it fails."""
    engine, has_memory = Engine(), [False]

    def begin() -> Run:
        if not has_memory[0]:
            raise MemoryError
        return Run(1)

    diffusions = opened(engine, 2)
    diffusions.add("b", JOB, begin)
    assert ended(diffusions, 3) == ["", "", "a"]
    assert ended(diffusions, 1) == ["B"]
    has_memory[0] = True
    diffusions.add("c", JOB, begin)
    assert ended(diffusions, 1) == ["c"]


def test_another_error_ends_all() -> None:
    def begin() -> Run:
        raise ValueError("broken")

    diffusions = opened(Engine(), 2)
    diffusions.add("b", JOB, begin)
    with pytest.raises(ValueError, match="broken"):
        diffusions.step()


def test_a_piece_without_frames_needs_no_call() -> None:
    engine = Engine()
    diffusions = opened(engine, 0, 2)
    assert ended(diffusions, 2) == ["a", "b"]
    assert [len(runs) for runs in engine.calls] == [1]


def test_the_memory_of_a_diffusion_is_its_part_of_the_estimate() -> None:
    planned = estimate(CONFIGS, JOB, Machine("bfloat16", "torch-cuda"))
    assert planned["NAR"].bytes == BYTES > 0


def test_places_and_groups() -> None:
    assert in_line([2, 0, 3]) == [slice(0, 2), slice(2, 2), slice(2, 5)]
    assert alike([5, 2, 4, 3], lambda number: number % 2) == [[5, 3], [2, 4]]
    assert alike([], lambda number: number) == []

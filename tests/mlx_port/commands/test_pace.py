"""The time of a long text, from sentences that are spoken unheard."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from mlx_port.commands.pace import TIMED, WARM_UP, seconds_to_compute
from tests.mlx_port.commands.fake import FakePipeline
from tts_core.errors import CancelledError, GenerationError


def ask(text: str) -> Any:
    return SimpleNamespace(text=text, seconds=1.0, seed=1)


def measured(pipeline: FakePipeline) -> float | None:
    return seconds_to_compute(cast(Any, pipeline), ask, 100.0)


def test_the_second_sentence_is_timed() -> None:
    pipeline = FakePipeline()
    assert measured(pipeline) == pytest.approx(42)
    assert [one.text for one in pipeline.all_asked] == [WARM_UP, TIMED]


def test_a_measurement_that_fails_is_none() -> None:
    assert measured(FakePipeline(error=GenerationError("no sound"))) is None
    assert measured(FakePipeline(seconds=0)) is None
    with pytest.raises(CancelledError):
        measured(FakePipeline(error=CancelledError("cancelled")))


def test_a_sentence_that_cannot_be_asked_for() -> None:
    def refuse(text: str) -> Any:
        raise GenerationError("text: no")

    assert seconds_to_compute(cast(Any, FakePipeline()), refuse, 1.0) is None

"""Recorded codes and samples, reproduced by both sides (tests/parity/recorded_runs.py)."""

import numpy as np
import pytest

from tests.parity.recorded_runs import RUNS, STRIDE, file_of, recorded, speak
from tests.sides import SIDES

pytestmark = pytest.mark.rest

LONGEST = 40  # frames of a text in the default run
CASES = [
    pytest.param(side, model, name, marks=[pytest.mark.slow] if run.slow else [], id=f"{model}-{name}-{side}")
    for model, runs in RUNS.items()
    for name, run in runs.items()
    for side in SIDES
]


@pytest.mark.parametrize(("side", "model", "name"), CASES)
def test_a_run_is_as_recorded(side: str, model: str, name: str) -> None:
    """Codes and the number of samples exactly; samples within the bound derived at recording."""
    run = RUNS[model][name]
    known = recorded(file_of(model, slow=run.slow))
    results = speak(side, model, run)
    assert [result.seed for result in results] == run.seeds
    for place, result in enumerate(results):
        at = f"{name}/{place}"
        np.testing.assert_array_equal(result.codes, known[f"{at}/codes"], err_msg=at)
        assert len(result.audio) == known[f"{at}/length"], at
        assert result.audio.dtype == np.float32
        error = np.abs(result.audio[::STRIDE].astype(np.float64) - known[f"{at}/samples"])
        assert error.max() <= known[f"{at}/bound"], f"{at}: sample {STRIDE * error.argmax()}"


@pytest.mark.parametrize("model", RUNS)
def test_the_recording_is_of_these_runs(model: str) -> None:
    """All texts of all runs and no others; at least 20 seeds in the default run, and only short texts."""
    for slow in (False, True):
        wanted = {
            f"{name}/{place}/{what}"
            for name, run in RUNS[model].items()
            for place in range(len(run.seeds))
            for what in ("codes", "samples", "length", "bound")
            if run.slow is slow
        }
        assert recorded(file_of(model, slow=slow)).keys() == wanted
    seeds = [seed for run in RUNS[model].values() if not run.slow for seed in run.seeds]
    assert len(set(seeds)) == len(seeds) >= 20
    for name, value in recorded(file_of(model, slow=False)).items():
        if name.endswith("/codes"):
            assert value.shape[1] <= LONGEST, name


@pytest.mark.parametrize("model", RUNS)
def test_the_bounds_are_those_of_rounding(model: str) -> None:
    """Every bound is at least 80 dB below the loudest sample."""
    for slow in (False, True):
        known = recorded(file_of(model, slow=slow))
        for name in known:
            if name.endswith("/bound"):
                loudest = np.abs(known[name.replace("/bound", "/samples")]).max()
                assert 0 < known[name] < 1e-4 * loudest, name

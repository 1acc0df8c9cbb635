"""Predictions of a step's time on Apple's chips, and the page with them."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from mlx_port.commands.bench import paper
from mlx_port.commands.bench.paper import CHIPS, chip_of, fit, predicted_ms

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def chips():
    """benchmarks/chips.py."""
    spec = importlib.util.spec_from_file_location("chips", ROOT / "benchmarks/chips.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["chips"] = module
    spec.loader.exec_module(module)
    return module


def test_the_fit_reproduces_the_published_speeds():
    share, cost = fit()
    assert 0.5 < share < 1
    assert 0.001 < cost < 0.01  # a launch takes 1 to 10 us
    assert paper.worst_error() < 0.02
    found = paper.PUBLISHED_WEIGHTS * 2 + paper.PUBLISHED_CACHE
    chip = next(chip for chip in CHIPS if chip.memory_speed == paper.PUBLISHED_SPEED)
    assert predicted_ms(int(found), paper.PUBLISHED_LAUNCHES, chip) == pytest.approx(1000 / 52.47, rel=0.02)


def test_a_prediction_adds_bytes_and_launches():
    slow, fast = CHIPS[0], CHIPS[3]
    share, cost = fit()
    assert predicted_ms(0, 100, slow) == predicted_ms(0, 100, fast) == pytest.approx(100 * cost)
    assert predicted_ms(10**9, 0, slow) == pytest.approx(1000 / (share * slow.memory_speed))


@pytest.mark.parametrize(
    ("device", "name"),
    [
        *[(f"Apple {chip.name}", chip.name) for chip in CHIPS],
        ("M1", "M1"),
        ("Apple M1 Plus", None),
        ("Apple M12", None),
        ("NVIDIA H200", None),
    ],
)
def test_chips_are_found_by_the_name_of_the_device(device, name):
    found = chip_of(device)
    assert (found and found.name) == name


def test_each_chip_is_there_once_with_its_source():
    assert len({chip.name for chip in CHIPS}) == len(CHIPS)
    assert all(chip.source.startswith("https://") for chip in CHIPS)
    assert all(chip.smaller is None or chip.smaller[0] < chip.memory_speed for chip in CHIPS)


def test_the_page_is_current(chips):
    assert (ROOT / "docs/measured/chips.md").read_text("utf-8") == chips.page(chips.sent())


def test_files_that_users_send_fill_the_columns(chips, tmp_path):
    """Medians of one text's steps; other devices, converted folders and refused cases are left out."""

    def send(name: str, device: str, times: list[float], published: str | None = "nari-labs/Dia-1.6B-0626"):
        cases = [
            {"batch": 1, "bits": 16, "refused": None, "step_ms": times[0]},
            {"batch": 4, "bits": 16, "refused": None, "step_ms": 99.0},
            {"batch": 1, "bits": 8, "refused": "takes 9 GB"},
        ]
        told = {"machine": {"device": device}, "model": {"name": "dia", "random_weights_of": published}}
        (tmp_path / f"{name}.json").write_text(json.dumps({**told, "cases": cases}))

    send("a", "Apple M2 Pro", [17.26])
    send("b", "Apple M2 Pro", [18.0])
    send("c", "Apple M2 Pro", [30.0])
    send("d", "NVIDIA H200", [1.0])
    send("e", "Apple M1", [1.0], published=None)
    measured = chips.sent(tmp_path)
    assert measured == {("M2 Pro", "dia", 16): [17.26, 18.0, 30.0]}
    rows = [line for line in chips.page(measured).splitlines() if line.startswith("| M2 Pro |")]
    assert " | 18.0 | " in rows[0]
    assert not any("18.0" in row for row in rows[1:])
    assert chips.page({}) != chips.page(measured)

"""Selection of a mutant's tests, from an invented source text and invented times."""

from pathlib import Path

import pytest

from tests.mutants import selection
from tests.mutants.selection import choose, files_fastest_first, importers, place_of, same_files

ROOT = Path(__file__).parents[2]
SOURCE = """\
LIMIT = 3

def clipped(x,
            top=LIMIT):
    if (x >
            top):
        return min(
            x,
            top,
        )
    return x

class Clip:
    depth = 2

    @property
    def top(self):
        try:
            return self.depth
        except KeyError:
            pass
"""


@pytest.mark.parametrize(
    ("line", "place"),
    [
        (1, (1, 1, True)),
        (4, (3, 4, True)),  # a default is evaluated with the function
        (6, (5, 6, False)),  # the test of an if, without its body
        (8, (7, 10, False)),
        (11, (11, 11, False)),
        (14, (14, 14, True)),
        (16, (16, 17, True)),  # a decorator
        (19, (19, 19, False)),
        (20, (20, 20, False)),
    ],
)
def test_the_statement_around_a_line(line, place):
    assert place_of(SOURCE, line, line) == place


def test_a_change_of_several_lines_covers_them_all():
    assert place_of(SOURCE, 5, 11) == (5, 11, False)


def test_a_process_that_a_test_starts_counts_for_the_test():
    assert selection.test_of("tests/a.py::test_x[1 (call)] (call)") == "tests/a.py::test_x[1 (call)]"
    assert selection.test_of("tests/a.py::test_x[1]") == "tests/a.py::test_x[1]"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import core.dac", True),
        ("from core.dac import CONFIG", True),
        ("def late():\n    from core import dac, delay", True),
        ("from core import delay", False),
        ("import core.dac_shapes", False),
    ],
)
def test_importers(text, found):
    assert importers("core/dac.py", {"core/dac.py": "", "other.py": text}) == (
        {"other.py"} if found else set()
    )


def test_importers_of_a_package():
    assert importers("core/__init__.py", {"a.py": "import core", "b.py": "import cores"}) == {"a.py"}


SECONDS = {"a.py::x[1]": 1.0, "a.py::x[2]": 2.0, "a.py::y": 3.0, "b.py::z": 0.5, "b.py::slow": 9.0}


def test_a_case_of_each_function_before_a_second_one():
    assert choose([SECONDS], SECONDS, 100) == ["b.py::z", "a.py::x[1]", "a.py::y", "b.py::slow", "a.py::x[2]"]


def test_tests_that_run_the_line_come_before_faster_others():
    assert choose([["a.py::y"], SECONDS], SECONDS, 3.5) == ["a.py::y", "b.py::z"]


def test_the_budget_is_used_up_and_kept():
    assert choose([SECONDS], SECONDS, 4.5) == ["b.py::z", "a.py::x[1]", "a.py::y"]
    assert choose([["b.py::slow"]], SECONDS, 4.5) == []


def test_a_test_without_a_time_did_not_pass():
    assert choose([["a.py::broken", "a.py::y"]], SECONDS, 100) == ["a.py::y"]


def test_files_go_by_the_time_of_what_was_chosen():
    assert files_fastest_first(SECONDS, SECONDS) == ["a.py", "b.py"]
    assert files_fastest_first(["a.py::y", "b.py::z"], SECONDS) == ["b.py", "a.py"]


def test_tests_of_the_same_files():
    assert same_files(["b.py::z"], SECONDS) == {"b.py::z", "b.py::slow"}


def test_mutants_are_drawn_from_what_a_cpu_runs():
    assert (ROOT / selection.GPU / "capture.py").is_file()
    drawn = ("torch_ref/dia/decoder.py", "mlx_port/dia/decoder.py", "torch_ref/cpu/dia/decoder.py")
    assert all(map(selection.runs_on_a_cpu, drawn))
    assert not any(map(selection.runs_on_a_cpu, ("torch_ref/cuda/capture.py", "torch_ref/cuda/dia/draws.py")))

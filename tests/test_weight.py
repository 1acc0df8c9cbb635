"""Lines of each concern of the packages: the bound only falls, or rises in the commit that says why."""

import re

import pytest

from tests.weight import PATTERNS, REST, bounds, files, weights


def test_every_file_has_a_concern():
    without = [path for concern, path, _ in files() if concern == REST]
    assert not without, "add them to PATTERNS in tests/weight.py"


@pytest.mark.parametrize("concern", [concern for concern, _ in PATTERNS])
def test_a_concern_is_within_its_bound(concern):
    lines, most = weights()[concern], bounds()[concern]
    assert lines <= most, f"{concern}: {lines} lines, {most} are allowed; see python -m tests.weight"


def test_every_bound_is_of_a_concern():
    assert bounds().keys() == {concern for concern, _ in PATTERNS}


@pytest.mark.parametrize(
    ("path", "concern"),
    [
        ("tts_core/speaking/windows.py", "sessions, engines, slots, runs"),
        ("tts_core/dia2/speech.py", "sessions, engines, slots, runs"),
        ("tts_core/mars5/net.py", "sessions, engines, slots, runs"),
        ("tts_core/speaking/live.py", "text live input"),
        ("torch_ref/cuda/qwen3/slots.py", "CUDA captured steps and Triton"),
        ("mlx_port/qwen3/slots.py", "sessions, engines, slots, runs"),
        ("tts_core/qwen3/probes.py", "verify: ladders, layer orders, command"),
    ],
)
def test_the_first_pattern_that_fits_counts(path, concern):
    assert next(name for name, paths in PATTERNS if re.fullmatch(paths, path)) == concern

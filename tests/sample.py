"""The sample of `make anywhere`: one test of nearly every file, and all that look most at their surroundings.

The choice follows the names of the tests, so it stays a sample of every file when tests move, come or go.
"""

from collections.abc import Iterable
from pathlib import PurePosixPath
from zlib import crc32

import pytest

# files and folders of which every test runs: cache, start, files, permissions, terminals, memory, processes
WHOLE = (
    "tests/converters/files/test_destination.py",
    "tests/converters/test_cli.py",
    "tests/converters/test_start.py",
    "tests/mlx_port/test_api.py",
    "tests/mlx_port/runtime/test_blas.py",
    "tests/mlx_port/test_loading.py",
    "tests/torch_ref/test_loading.py",
    "tests/tts_core/audio/test_files.py",
    "tests/tts_core/files",
    "tests/tts_core/memory",
)
# of these nothing runs: rules about the sources, and files whose shortest test takes as long as many others
NONE = (
    "tests/mlx_port/commands/batch/test_real.py",
    "tests/mlx_port/commands/serve/live/test_dia2.py",
    "tests/mlx_port/commands/serve/test_soak.py",
    "tests/mlx_port/commands/serve/web",
    "tests/parity/dia/test_slots.py",
    "tests/parity/dia2/test_arriving.py",
    "tests/parity/dia2/test_rows.py",
    "tests/parity/dia2/test_session.py",
    "tests/parity/mars5/test_slots.py",
    "tests/contract/test_sessions.py",
    "tests/test_docstrings.py",
    "tests/test_imports.py",
    "tests/torch_ref/limits",
    "tests/tts_core/judges",
    "tests/tts_core/serving/test_shelf.py",
    "tests/tts_core/text/test_bpe.py",
)


def sample(items: Iterable[pytest.Item]) -> set[str]:
    """Names of the chosen tests. Of a file, one that can run here if there is any."""
    names: set[str] = set()
    best: dict[str, tuple[bool, int, str]] = {}
    for item in items:
        file = item.nodeid.partition("::")[0]
        if within(file, NONE):
            continue
        if within(file, WHOLE):
            names.add(item.nodeid)
        skipped = item.get_closest_marker("skip") is not None
        rank = (skipped, crc32(item.nodeid.encode()), item.nodeid)
        best[file] = min(best.get(file, rank), rank)
    return names | {name for _, _, name in best.values()}


def within(file: str, places: Iterable[str]) -> bool:
    """Check whether a file is one of `places`, or in a folder of them."""
    path = PurePosixPath(file)
    return any(path.is_relative_to(place) for place in places)

"""Install lines in messages and pages: each names extras of the wheel, and what to type in a clone."""

from __future__ import annotations

import ast
import re
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

from tts_core.extras import EXTRAS, install

ROOT = Path(__file__).parent.parent
PACKAGES = ("mlx_port", "torch_ref", "converters", "tts_core")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
RELEASE = re.compile(r"'mlx-port\[([\w,]+)\]'")
CLONE = re.compile(r"'\.\[([\w,]+)\]'")
LINES = sorted(
    {line for page in PAGES for kind in (RELEASE, CLONE) for line in kind.findall(page.read_text())}
)


def calls(path: Path) -> Iterator[list[ast.expr]]:
    """Arguments of the calls of `install` in a module that imports it from tts_core.extras."""
    tree = ast.parse(path.read_text())
    if any(isinstance(node, ast.ImportFrom) and node.module == "tts_core.extras" for node in ast.walk(tree)):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "install":
                yield node.args


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> Message:
    """METADATA of the wheel, which is built."""
    builder = pytest.importorskip("hatchling.builders.wheel", reason="hatchling builds the package")
    folder = tmp_path_factory.mktemp("dist")
    [built] = builder.WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    with zipfile.ZipFile(built) as wheel:
        [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_bytes(wheel.read(name))


def test_the_wheel_provides_every_extra_that_messages_and_pages_name(metadata: Message) -> None:
    """Under the name that they install, each with the libraries that tell whether it is installed."""
    assert metadata["Name"] == "mlx-port"
    named = {*EXTRAS, *(extra for line in LINES for extra in line.split(","))}
    assert named - {*metadata.get_all("Provides-Extra", [])} == set()
    for name, extra in EXTRAS.items():
        marked = [line for line in metadata.get_all("Requires-Dist", []) if f"extra == '{name}'" in line]
        needed = {re.split(r"[\s\[;<>=]", line)[0] for line in marked}
        assert {one for one in extra.needs if not one.startswith("mlx-")} <= needed, name


def test_messages_name_extras_by_one_function() -> None:
    """So that each has a line for clones, and an extra that is there."""
    assert [path.name for path in SOURCES if "mlx-port[" in path.read_text()] == ["extras.py"]
    named = [argument for path in SOURCES for given in calls(path) for argument in given]
    constant = [argument.value for argument in named if isinstance(argument, ast.Constant)]
    assert len(constant) >= 10
    assert {*constant} - EXTRAS.keys() == set()
    assert (
        install("cpu", "serve")
        == "pip install 'mlx-port[cpu,serve]', or in a clone: pip install '.[cpu,serve]'"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_have_a_line_for_clones_beside_one_of_a_release(page: Path) -> None:
    text = page.read_text()
    assert {*RELEASE.findall(text)} - {*CLONE.findall(text)} == set()
    assert {extra for line in CLONE.findall(text) for extra in line.split(",")} - EXTRAS.keys() <= {
        "test",
        "dev",
    }

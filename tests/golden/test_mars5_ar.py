"""MARS5's tokenizers, sampling and autoregressive network against vectors of the original code."""

import pytest

from tests.golden.cases import golden_root
from tests.golden.mars5_ar_checks import (
    check_checkpoint,
    check_forward,
    check_generate,
    check_samplers,
    check_tokens,
)
from tests.sides import BOTH

pytestmark = pytest.mark.golden

FOLDER = golden_root() / "mars5"
FILES = {file.name for file in FOLDER.glob("*")}
CHECKPOINTS = sorted({name.partition(".")[0] for name in FILES if name.startswith("mars5_ar")})


def cases(file: str) -> pytest.MarkDecorator:
    """One case per side; none if the folder lacks the file."""
    found = [file] if file in FILES else []
    ids = [f"mars5/{stem.partition('.')[0]}/{side}" for stem in found for side in BOTH]
    return pytest.mark.parametrize("side", [side for _ in found for side in BOTH], ids=ids)


@pytest.fixture(autouse=True)
def frameworks(request: pytest.FixtureRequest) -> None:
    side = request.node.callspec.params.get("side") if hasattr(request.node, "callspec") else None
    if side is not None:
        pytest.importorskip("torch", reason="torch is not installed: it is the oracle of both sides")
        pytest.importorskip("mlx.core" if side == "mlx" else "torch", reason=f"{side} is not installed")


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_checkpoint(name: str) -> None:
    check_checkpoint(FOLDER, name)


@pytest.mark.parametrize(
    "file", [pytest.param(file, id="mars5/tok_pairs") for file in FILES & {"tok_pairs.json"}]
)
def test_tokens(file: str) -> None:
    check_tokens(FOLDER)


@cases("ar_forward.json")
def test_forward(side: str) -> None:
    check_forward(FOLDER, side)


@cases("ar_generate.json")
def test_generate(side: str) -> None:
    check_generate(FOLDER, side)


@cases("samplers.json")
def test_samplers(side: str) -> None:
    check_samplers(FOLDER, side)

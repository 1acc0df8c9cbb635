"""Setup of every test: no network, a cache of its own, true float32, and skips that name what is missing."""

import gc
import importlib.util
import os
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, wraps
from pathlib import Path
from typing import Any

os.environ["MLX_ENABLE_TF32"] = "0"  # read when MLX is imported
os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
from hypothesis import settings

from tests import absent, order, temporary
from tests.sample import sample

settings.register_profile("untimed", deadline=None)  # a busy machine is no failure
settings.load_profile("untimed")

if importlib.util.find_spec("torch") is not None:
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))  # the networks are too small for more


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sample", action="store_true", help="run the sample of `make anywhere`")
    parser.addoption(order.OPTION, type=int, metavar="SEED", help="run the tests in a random order")


def pytest_configure(config: pytest.Config) -> None:
    for plugin in (absent, order, temporary):
        config.pluginmanager.register(plugin)
    if importlib.util.find_spec("mlx") is not None:
        import mlx_port  # noqa: F401  # chooses the BLAS before any test imports MLX


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep imported modules out of garbage collection: scanning them again took a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture
def verify_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `mlx-port verify` run in this process, which is exact: the variable above was set before MLX's
    import. The command cannot know that (tests/parity/verify/test_process.py).
    """
    monkeypatch.setattr("mlx_port.commands.verify.command._exact", lambda: True)


@pytest.fixture(scope="module", autouse=True)
def out_of_collection() -> Iterator[None]:
    """Freeze all again where tests of a module, or their server, unfroze it: a look took a second."""
    yield
    if gc.get_freeze_count() < 10_000:
        gc.collect()
        gc.freeze()


@pytest.hookimpl(trylast=True)  # after -m has left out others
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for mark, missing in MISSING.items():
            if item.get_closest_marker(mark) and (reason := missing()):
                item.add_marker(pytest.mark.skip(reason=reason))
    if (seed := config.getoption(order.OPTION)) is not None:
        items[:] = order.shuffled(items, seed)
    if config.getoption("--sample"):
        chosen = sample(items)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
        items[:] = [item for item in items if item.nodeid in chosen]


class Calls(Counter[str]):
    """Number of calls by name of the functions that are watched."""

    def __init__(self, patch: pytest.MonkeyPatch):
        super().__init__()
        self._patch = patch

    def watch(self, owner: Any, *names: str) -> None:
        """Count the calls of these functions of a module or class."""
        for name in names:
            self._patch.setattr(owner, name, self._counted(name, getattr(owner, name)))

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*given: Any, **named: Any) -> Any:
            self[name] += 1
            return function(*given, **named)

        return call


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Counts of calls during one test."""
    return Calls(monkeypatch)


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Dia in a published folder."""
    from tests.tiny.dia import write_published
    from tests.tiny.networks import published_dac_config, tiny

    dia, dac = tiny("dia", seed=3, eos=1.3), tiny(published_dac_config())
    return write_published(tmp_path_factory.mktemp("published") / "tiny", dia, dac)


@cache
def no_metal() -> str | None:
    if importlib.util.find_spec("mlx") is None:
        return "MLX is not installed"
    import mlx.core as mx

    return None if mx.metal.is_available() else "no Apple GPU for MLX"


@cache
def no_mps() -> str | None:
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch

    return None if torch.backends.mps.is_available() else "no Apple GPU for torch"


@cache
def no_cuda() -> str | None:
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch

    return None if torch.cuda.is_available() else "no NVIDIA GPU"


def no_weights() -> str | None:
    return None if os.environ.get("MLX_PORT_WEIGHTS") else "MLX_PORT_WEIGHTS names no folder"


def no_torch() -> str | None:
    return None if importlib.util.find_spec("torch") is not None else "torch is not installed"


MISSING: dict[str, Callable[[], str | None]] = {
    "metal": no_metal,
    "mps": no_mps,
    "cuda": no_cuda,
    "weights": no_weights,
    "torch": no_torch,
}

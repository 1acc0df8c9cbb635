"""No gradients in these tests, which all need PyTorch; small published models, each written once."""

import importlib.util
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["*"]
else:
    import torch


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


@pytest.fixture(scope="session")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """tests.parity.verify.origins.Origin by name."""
    from tests.parity.verify.origins import write_origin

    return cache(lambda name: write_origin(name, tmp_path_factory.mktemp("published")))

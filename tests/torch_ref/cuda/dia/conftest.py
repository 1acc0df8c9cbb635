"""Captured slots run where there is no GPU."""

import pytest

from tests.torch_ref.cuda.eager import uncaptured
from torch_ref.cuda import batch


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    uncaptured(monkeypatch, batch)

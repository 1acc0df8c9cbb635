"""No gradients in these tests."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    with torch.inference_mode():
        yield

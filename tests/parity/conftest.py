"""No gradients anywhere in these tests; PyTorch's embedded tables and weights are made without them too."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    with torch.inference_mode():
        yield

from __future__ import annotations

import pytest

from mlx_port.kernels.source import Kernel
from tests.metal_text.compiler import Compiler, find
from tests.metal_text.text import Processor


@pytest.fixture(scope="session")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    found = find(tmp_path_factory.mktemp("metal_text"))
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture
def processor(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> Processor:
    """Every kernel runs from its Metal text on the CPU."""
    made = Processor(compiler)
    monkeypatch.setattr(Kernel, "__call__", lambda kernel, inputs, **how: made.call(kernel, inputs, **how))
    return made

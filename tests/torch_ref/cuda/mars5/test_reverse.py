"""The diffusion's captured step draws the codes of the plain one, on kernels or on the layers."""

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.tiny.mars5_nar import TEXT, codes
from tests.torch_ref.cuda.eager import eager
from tests.torch_ref.cuda.marks import DEVICE
from tests.torch_ref.cuda.mars5.diffusions import WAYS, cells, run, small
from tests.torch_ref.cuda.mars5.layers import on_layers as on_layers
from torch_ref.cuda.capture import uncollected
from torch_ref.cuda.mars5 import reverse
from torch_ref.cuda.triton import INTERPRETED, triton
from torch_ref.mars5.reverse import DenoisingStep, ReverseDiffusion
from tts_core.mars5.diffusion import Diffusion
from tts_core.nn.noise import HostNoise

ON_KERNELS = [
    pytest.mark.skipif(triton is None, reason="Triton is not installed: it comes with torch for CUDA"),
    *([] if INTERPRETED else [pytest.mark.cuda]),
]


@pytest.mark.usefixtures("on_layers")
@pytest.mark.parametrize("deep", [False, True], ids=["shallow", "deep"])
def test_the_work_of_a_graph(*, deep: bool) -> None:
    """Without kernels, and so without their draws."""
    way = WAYS["as upstream draws"]
    made = run(small(), way, reverse.KernelDenoisingStep, deep=deep)
    np.testing.assert_array_equal(made, run(small(), way, deep=deep))


@pytest.mark.parametrize("device", [pytest.param(DEVICE, marks=ON_KERNELS)])
@pytest.mark.parametrize("deep", [False, True], ids=["shallow", "deep"])
@pytest.mark.parametrize("way", WAYS)
def test_captured_step(way: str, device: str, monkeypatch: pytest.MonkeyPatch, *, deep: bool) -> None:
    """In float32; how the kernels round: test_fused.py."""
    if device == "cpu":
        monkeypatch.setattr(reverse, "capture", eager)
    plain = run(small(device), WAYS[way], deep=deep)
    made = run(small(device), WAYS[way], reverse.make_step, deep=deep)
    np.testing.assert_array_equal(made, plain)


@pytest.mark.usefixtures("on_layers")
@pytest.mark.parametrize("usable", [True, False])
def test_the_form_where_kernels_run_and_elsewhere(usable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reverse.runs(small()) == INTERPRETED
    monkeypatch.setattr(reverse, "runs", lambda _: usable)
    network, begin, settings = small(), cells(deep=False), Diffusion()
    source = ReverseDiffusion(network).read(TEXT, codes(4), begin, settings)
    made: Any = reverse.make_step(network, source, begin, settings)
    assert type(made) is (reverse.KernelDenoisingStep if usable else DenoisingStep)


class Graph:
    """A graph that computes nothing."""

    def replay(self) -> None:
        pass


@pytest.mark.usefixtures("on_layers")
def test_a_graph_is_freed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the collector of cycles: it may run while another graph is captured, and end the capture."""
    graphs: list[weakref.ref[Graph]] = []

    def captured(run: Callable[[], torch.Tensor], *_: Any, **__: Any) -> tuple[Graph, torch.Tensor]:
        graph = Graph()
        graphs.append(weakref.ref(graph))
        return graph, run()

    monkeypatch.setattr(reverse, "capture", captured)
    diffusion = ReverseDiffusion(small(), reverse.KernelDenoisingStep)
    own = diffusion.begin(
        TEXT, codes(4, seed=2), cells(deep=True), WAYS["as upstream draws"], noise=HostNoise(1)
    )
    with uncollected():
        own.step()
        own.step()
        assert len(graphs) == 1
        assert graphs[0]() is not None
        del own
        assert graphs[0]() is None

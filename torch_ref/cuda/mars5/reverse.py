"""A step of MARS5's diffusion, captured as a CUDA graph, on kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from torch_ref.cuda.capture import capture
from torch_ref.cuda.mars5.frames import draw_cells
from torch_ref.cuda.mars5.fused import FusedTransformer, runs
from torch_ref.limits.remedies import at_least_float32
from torch_ref.mars5.residual_transformer import Mars5Source, ResidualTransformer
from torch_ref.mars5.reverse import DenoisingStep
from tts_core.mars5.diffusion import Cells, Diffusion

Compute = Callable[[Tensor, Tensor, Tensor], Tensor]


class Captured:
    """A step captured as a CUDA graph: one launch instead of a thousand.

    It keeps no reference to its computation, which owns it: a cycle would free the graph at any time.
    """

    def __init__(self) -> None:
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, compute: Compute, codes: Tensor, t: Tensor, numbers: Tensor) -> Tensor:
        """Run the step, the same `compute` at every call. It returns the same buffer each time."""
        if self.graph is None:
            self.codes, self.t, self.numbers = codes.contiguous().clone(), t.clone(), numbers.clone()
            step = partial(self._step, compute)
            self.graph, _ = capture(step, t.device, again=lambda: None)  # inputs are set below
        for own, given in ((self.codes, codes), (self.t, t), (self.numbers, numbers)):
            if own is not given:
                own.copy_(given)
        self.graph.replay()
        return self.codes

    def _step(self, compute: Compute) -> Tensor:
        self.codes.copy_(compute(self.codes, self.t, self.numbers))
        return self.t


class KernelDenoisingStep(DenoisingStep):
    """The captured step on kernels; with two numbers per cell, all draws are one of them.

    Returns the same buffer each time.
    """

    def __init__(self, network: ResidualTransformer, source: Mars5Source, cells: Cells, settings: Diffusion):
        super().__init__(network, source, cells, settings)
        self.fused = FusedTransformer(network, source)
        self.captured = Captured()

    def __call__(self, codes: Tensor, t: Tensor, numbers: Tensor) -> Tensor:
        return self.captured(self.compute, codes, t, numbers)

    def drawn(self, logits: Tensor, codes: Tensor, t: Tensor, numbers: Tensor) -> Tensor:
        """Draw by kernels. logits: of any strides, the last one 1."""
        if self.settings.draws != "per cell":
            return super().drawn(at_least_float32(logits), codes, t, numbers)
        return draw_cells(
            logits,
            codes,
            self.clean,
            self.known,
            numbers,
            self.table,
            t,
            self.finite,
            first_frame=self.first_frame,
            first_book=self.first_book,
            guidance_w=self.settings.guidance_w,
            x_0_temp=self.settings.x_0_temp,
        )

    def logits(self, codes: Tensor, t: Tensor) -> Tensor:
        """Compute logits in the network's dtype."""
        return self.fused.logits(codes, t, self.first_frame, self.first_book)


def make_step(
    network: ResidualTransformer, source: Mars5Source, cells: Cells, settings: Diffusion
) -> DenoisingStep:
    """Build a captured step where the kernels support the network, else a plain one."""
    form = KernelDenoisingStep if runs(network) else DenoisingStep
    return form(network, source, cells, settings)

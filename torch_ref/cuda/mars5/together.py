"""A timestep of several of MARS5's diffusions, captured as one CUDA graph, on kernels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from torch_ref.cuda.mars5.fused import FusedTransformer
from torch_ref.cuda.mars5.reverse import Captured, KernelDenoisingStep
from torch_ref.mars5.residual_transformer import ResidualTransformer
from torch_ref.mars5.reverse import DenoisingStep
from torch_ref.mars5.together import Together
from tts_core.mars5.together import in_line

# cuDNN builds a plan for each shape and stride, and the strides are other ones for each set of runs
ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class KernelTogether(Together):
    """The captured step on kernels. Returns the same buffers each time."""

    def __init__(self, network: ResidualTransformer, steps: Sequence[KernelDenoisingStep]):
        super().__init__(network, steps)
        self.fused = FusedTransformer(network, [one for step in steps for one in step.fused.readings])
        self.captured = Captured()

    def __call__(self, codes: Sequence[Tensor], t: Tensor, numbers: Sequence[Tensor]) -> list[Tensor]:
        return self.captured(self._compute, codes, t, numbers)

    def logits(self, codes: Sequence[Tensor], t: Tensor) -> list[Tensor]:
        """Compute logits in the network's dtype."""
        firsts = [step.first_frame for step in self.steps]
        logits = self.fused.logits(torch.cat([*codes]), t, firsts, self.first_book)
        rows = in_line([len(one) - first for one, first in zip(codes, firsts, strict=True)])
        return self.parted(logits, rows)

    def _compute(self, codes: Sequence[Tensor], t: Tensor, numbers: Sequence[Tensor]) -> list[Tensor]:
        with sdpa_kernel(ATTENTION):
            return self.compute(codes, t, numbers)


def make_together(network: ResidualTransformer, steps: Sequence[DenoisingStep]) -> Together:
    """Build the form of the runs' own steps."""
    kernels = [step for step in steps if isinstance(step, KernelDenoisingStep)]
    return KernelTogether(network, kernels) if len(kernels) == len(steps) else Together(network, steps)

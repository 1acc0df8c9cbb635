"""DAC's decoder of streams on CUDA: one kernel between two convolutions, samples late.

The operations are those of torch_ref.codecs.dac.Dac.decode_window, with a transposed convolution as in
torch_ref/cuda/codecs/decoder.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ref.codecs.dac import Dac, DecoderBlock, Snake1d, VectorQuantizer
from torch_ref.cuda.codecs.causal import Activation, Inside, Memory, next_inputs, sound
from torch_ref.cuda.codecs.conv import CausalConv, laid_out
from torch_ref.cuda.snake import usable
from torch_ref.limits.precision import LAYOUTS, Precision, computing


class _DelayedStep(NamedTuple):
    """A sum, an activation and a convolution.

    adds: a skip to the sum.
    line: steps by which the sum is late as the next skip; 0 if it is none.
    timing: rate, late and short of the sum, as of Inside; None if it need not be zero anywhere.
    """

    activation: Activation
    conv: CausalConv
    adds: bool
    line: int
    timing: tuple[int, int, int] | None


class _DelayedForm:
    """The decoder's weights laid out for a precision."""

    def __init__(self, codec: Dac, precision: Precision):
        self.dtype, self.layout = LAYOUTS[precision]
        books = cast(Sequence[VectorQuantizer], codec.quantizer.quantizers)
        size, width = codec.config.codebook_size, max(codec.config.codebook_dim)
        tables = [book.codebook.weight.detach() for book in books]
        self.table = torch.cat([F.pad(table, (0, width - table.shape[1])) for table in tables])
        self.firsts = size * torch.arange(len(tables), device=self.table.device)
        outs = [book.out_proj.weight.detach()[:, :, 0] for book in books]
        outs = [F.pad(out, (0, width - out.shape[1])) for out in outs]
        self.project = torch.cat(outs, dim=1).to(self.dtype)
        biases = [cast(Tensor, book.out_proj.bias).detach() for book in books]
        self.bias = torch.stack(biases).sum(dim=0).to(self.dtype)
        *self.steps, self.last = self._steps(codec)
        weight = codec.decoder.conv2.weight.detach()
        self.last_weight = weight[0].T.contiguous()

    def latents(self, codes: Tensor) -> Tensor:
        """Sum the entries of codes. (R, Q, T) → (R, T, 1, C)."""
        found = F.embedding(codes.transpose(1, 2) + self.firsts, self.table).flatten(2)
        return F.linear(found.to(self.dtype), self.project, self.bias)[:, :, None]

    def __call__(self, codes: Tensor, starts: Tensor, ends: Tensor, memory: Memory) -> Tensor:
        x, bias, skip, step = self.latents(codes), None, None, self.last
        for step in (*self.steps, self.last):
            held = step.conv.inputs(x.shape[0], x.shape[1] * x.shape[2])
            within = None if step.timing is None else Inside(starts, ends, *step.timing)
            summed = next_inputs(
                x, bias, skip if step.adds else None, step.activation, step.conv.count, memory, held,
                sums=step.line > 0, line=step.line, within=within,
            )  # fmt: skip
            if step is self.last:
                return torch.tanh(sound(held, self.last_weight, cast(Tensor, step.conv.bias), float("inf")))
            skip = summed if step.line else skip
            x, bias = step.conv(held), step.conv.bias
        raise AssertionError("the last step returns")

    def _steps(self, codec: Dac) -> Iterator[_DelayedStep]:
        rate, late, short = 1, 0, 0
        for activation, layer, adds, opens, masked in _layers(codec):
            padding = int(layer.padding[0])
            index = (rate, late, short) if masked else None
            line = padding if opens else 0
            yield _DelayedStep(activation, laid_out(layer, self.dtype, self.layout), adds, line, index)
            if isinstance(layer, nn.ConvTranspose1d):
                stride = layer.stride[0]
                rate, late = rate * stride, late * stride + padding
                short = short * stride + 2 * padding - stride
            else:
                late += padding


class FusedDelayed:
    """Decodes pieces of DAC's streams as its `decode_window` does, with a state of its own in one tensor.

    Weights are copied in the layout of the precision.
    """

    def __init__(self, codec: Dac):
        self.codec = codec
        self._forms: dict[Precision, _DelayedForm] = {}

    @property
    def runs(self) -> bool:
        """True where kernels run; elsewhere there is no state."""
        weight = self.codec.decoder.conv2.weight
        with torch.inference_mode():
            return usable(weight) and weight.dtype == torch.float32

    @property
    def width(self) -> int:
        """Numbers of a stream's state."""
        form = self._form
        steps = (*form.steps, form.last)
        return sum((step.conv.count + step.line) * step.conv.weight.shape[1] for step in steps)

    @torch.inference_mode()
    def __call__(self, codes: Tensor, starts: Tensor, ends: Tensor, flat: Tensor) -> tuple[Tensor, Tensor]:
        """Decode the next frames of streams. (R, Q, T), (R, N) → (R, hop T), and the next state.

        starts, ends: frames before the call and in all, (R,) int64.
        """
        memory = Memory(flat)
        with computing("tf32" if self.codec.precision == "tf32" else "float32", codes.device):
            return self._form(codes, starts, ends, memory), memory.after

    @property
    def _form(self) -> _DelayedForm:
        precision = self.codec.precision
        if precision not in self._forms:
            with torch.inference_mode():
                self._forms[precision] = _DelayedForm(self.codec, precision)
        return self._forms[precision]


Found = tuple[Activation, nn.Conv1d | nn.ConvTranspose1d, bool, bool, bool]


def _layers(codec: Dac) -> Iterator[Found]:
    """Yield each convolution after its activation, and whether a skip closes and opens before that, and
    padding stands around.
    """
    decoder = codec.decoder
    yield Activation(), decoder.conv1, False, False, True
    adds = False
    for block in cast(Sequence[DecoderBlock], decoder.block):
        yield _snake(block.snake1), block.conv_t1, adds, False, True
        adds = False
        for unit in (block.res_unit1, block.res_unit2, block.res_unit3):
            yield _snake(unit.snake1), unit.conv1, adds, True, True
            yield _snake(unit.snake2), unit.conv2, False, False, False
            adds = True
    yield _snake(decoder.snake1), decoder.conv2, adds, False, True


def _snake(layer: Snake1d) -> Activation:
    alpha = layer.alpha.detach().flatten()
    return Activation("snake", alpha, (alpha + 1e-9).reciprocal())

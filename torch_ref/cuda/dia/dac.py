"""DAC's decoder on CUDA: one kernel between two convolutions adds the bias, the skip, and applies Snake.

The operations are those of torch_ref.codecs.dac.Decoder in the same order. In TF32 and bfloat16 channels are
last, as cuDNN's kernels for tensor cores read them: it would turn every input and output otherwise.
"""

# pyright: reportInvalidTypeForm=false
# (Triton reads the kernel's annotations)

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ref.codecs.dac import Dac, DecoderBlock, Snake1d
from torch_ref.cuda.snake import snake, usable
from torch_ref.cuda.triton import jit, tl, triton
from torch_ref.limits.precision import LAYOUTS, Precision, computing

BLOCK = 1024


class KernelSnake1d(Snake1d):
    """The layer on the kernel, where that takes its input."""

    def __init__(self, layer: Snake1d):
        nn.Module.__init__(self)
        self.alpha = layer.alpha

    def forward(self, x: Tensor) -> Tensor:
        return snake(x, self.alpha) if usable(x) else super().forward(x)


class _Conv(NamedTuple):
    """A convolution over (B, C, 1, T), without its bias. transposed: whether it raises the rate."""

    weight: Tensor
    bias: Tensor
    stride: int
    padding: int
    dilation: int
    transposed: bool

    def __call__(self, x: Tensor) -> Tensor:
        stride, padding, dilation = (1, self.stride), (0, self.padding), (1, self.dilation)
        if self.transposed:
            return F.conv_transpose2d(x, self.weight, None, stride, padding, dilation=dilation)
        return F.conv2d(x, self.weight, None, stride, padding, dilation)


class FusedDac:
    """Decodes as the codec's `decode_whole` does. Where kernels run, the decoder's weights are copied in the
    layout of the precision.
    """

    def __init__(self, codec: Dac):
        self.codec = codec
        self._layers: dict[Precision, dict[nn.Module, _Conv]] = {}

    @torch.inference_mode()
    def __call__(self, codes: Tensor) -> Tensor:
        """Decode codes without windows. (B, q, T) → (B, L)."""
        codec, weight = self.codec, self.codec.decoder.conv2.weight
        if not (usable(weight) and weight.dtype == torch.float32):
            return codec.decode_whole(codes)
        with computing(codec.precision, weight.device):
            latents = codec.quantizer.decode(codes)
        with computing("tf32" if codec.precision == "tf32" else "float32", weight.device):
            return self._decode(latents)

    def _decode(self, latents: Tensor) -> Tensor:
        """Decode latents. (B, C, T) → (B, L)."""
        decoder, precision = self.codec.decoder, self.codec.precision
        if precision not in self._layers:
            self._layers[precision] = self._laid_out(precision)
        convs, (dtype, layout) = self._layers[precision], LAYOUTS[precision]
        last = convs[decoder.conv1]
        x = last(latents[:, :, None].to(dtype, memory_format=layout))
        skip: Tensor | None = None
        for block in cast(Sequence[DecoderBlock], decoder.block):
            raised = convs[block.conv_t1]
            x = raised(activated(x, last.bias, block.snake1, skip))
            last, skip = raised, None
            for unit in (block.res_unit1, block.res_unit2, block.res_unit3):
                y, skip = summed(x, last.bias, unit.snake1, skip)
                first, last = convs[unit.conv1], convs[unit.conv2]
                x = last(activated(first(y), first.bias, unit.snake2, None))
        sound = convs[decoder.conv2]
        x = sound(activated(x, last.bias, decoder.snake1, skip))
        return torch.tanh(x[:, 0, 0].float() + sound.bias)

    def _laid_out(self, precision: Precision) -> dict[nn.Module, _Conv]:
        """Lay out the decoder's weights for a precision."""
        dtype, layout = LAYOUTS[precision]
        found = {}
        for layer in self.codec.decoder.modules():
            if isinstance(layer, nn.Conv1d | nn.ConvTranspose1d):
                weight = layer.weight.detach()[:, :, None].to(dtype).contiguous(memory_format=layout)
                bias = cast(Tensor, layer.bias).detach()
                sizes = layer.stride[0], int(layer.padding[0]), layer.dilation[0]
                found[layer] = _Conv(weight, bias, *sizes, isinstance(layer, nn.ConvTranspose1d))
        return found


def activated(x: Tensor, bias: Tensor, snake: Snake1d, skip: Tensor | None) -> Tensor:
    """Compute Snake of x + bias + skip. (B, C, 1, T), skip as x or None → same, in x's layout."""
    return _launched(x, bias, snake, skip, None)


def summed(x: Tensor, bias: Tensor, snake: Snake1d, skip: Tensor | None) -> tuple[Tensor, Tensor]:
    """Compute Snake of x + bias + skip, and that sum, which takes the place of x."""
    return _launched(x, bias, snake, skip, x), x


def _launched(x: Tensor, bias: Tensor, snake: Snake1d, skip: Tensor | None, sums: Tensor | None) -> Tensor:
    out, last = torch.empty_like(x), x.stride(1) == 1 and x.shape[1] > 1
    batch, channels, _, length = x.shape
    rows, length = (batch, channels * length) if last else (batch * channels, length)
    blocks = triton.cdiv(length, BLOCK)
    _activate[rows * blocks,](
        x, bias, x if skip is None else skip, snake.alpha, x if sums is None else sums, out, length, blocks,
        CHANNELS=channels, LAST=last, SKIP=skip is not None, SUMS=sums is not None, BLOCK=BLOCK, num_warps=4,
        enable_fp_fusion=False,
    )  # fmt: skip
    return out


@jit
def _activate(
    x, bias, skip, alpha, sums, out, length, blocks,
    CHANNELS: tl.constexpr, LAST: tl.constexpr, SKIP: tl.constexpr, SUMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, col = tl.program_id(0) // blocks, tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    inside, at = col < length, row.to(tl.int64) * length + col
    channel = col % CHANNELS if LAST else row % CHANNELS + col * 0
    kind = out.dtype.element_ty
    y = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) + tl.load(bias + channel).to(tl.float32)
    y = y.to(kind).to(tl.float32)
    if SKIP:
        y = (tl.load(skip + at, mask=inside, other=0.0).to(tl.float32) + y).to(kind).to(tl.float32)
    if SUMS:
        tl.store(sums + at, y.to(kind), mask=inside)
    a = tl.load(alpha + channel).to(tl.float32)
    s = tl.sin(a * y)
    factor = tl.div_rn(tl.full([BLOCK], 1.0, dtype=tl.float32), a + 1e-9)
    tl.store(out + at, (y + factor * (s * s)).to(kind), mask=inside)

"""Decoders of streams of Mimi and Qwen3-TTS's codec on CUDA: one kernel between two convolutions.

The operations are those of the codecs' `decode_window`. Differs from it: a transposed convolution is one of
few taps with the outputs of a step side by side, so that streams carry its inputs; scales of layers are part
of the weights before them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ref.codecs.encodec import CausalConvTranspose1d, VectorQuantizer
from torch_ref.codecs.mimi import CausalConv1d, Mimi, ResidualBlock, SplitResidualVectorQuantizer
from torch_ref.codecs.mimi_transformer import Attention, FeedForward
from torch_ref.codecs.mimi_transformer import TransformerLayer as MimiLayer
from torch_ref.codecs.qwen3_codec import Qwen3Codec
from torch_ref.codecs.qwen3_decoder import ConvNeXtBlock, DecoderBlock, ResidualUnit
from torch_ref.codecs.qwen3_decoder import TransformerLayer as Qwen3Layer
from torch_ref.cuda.codecs.causal import (
    Activation,
    Memory,
    attended,
    depthwise_norm,
    entries,
    next_inputs,
    sound,
)
from torch_ref.cuda.codecs.conv import CausalConv, laid_out
from torch_ref.cuda.pointwise import add_layer_norm, add_norm, gated
from torch_ref.cuda.snake import usable
from torch_ref.layers.norm import LayerNorm, RMSNorm
from torch_ref.layers.rope import Rotation
from torch_ref.layers.snake import LogSnake1d
from torch_ref.limits.precision import LAYOUTS, Precision, computing
from tts_core.codecs.mimi import STEPS

Convolution = CausalConv1d | CausalConvTranspose1d
NONE = Activation()


class _Step(NamedTuple):
    """An activation and a convolution. opens, closes: the first and last one around which a skip is."""

    activation: Activation
    conv: CausalConv
    opens: bool
    closes: bool


class _Weights(NamedTuple):
    """A layer of a transformer; the linears after attention and feed-forward hold its scales."""

    norms: tuple[RMSNorm | LayerNorm, RMSNorm | LayerNorm]
    qkv: Tensor
    out: Tensor
    up: Tensor  # of Qwen3-TTS's codec: gate and up
    down: Tensor
    gated: bool


class _Raise(NamedTuple):
    """A transposed convolution whose outputs do not overlap, and a ConvNeXt block."""

    weight: Tensor  # (s·C, C)
    bias: Tensor
    ratio: int
    taps: Tensor  # (k, C)
    shift: Tensor
    norm: tuple[Tensor, Tensor, float]
    first: tuple[Tensor, Tensor]
    second: Tensor  # (4C, C), with the scale
    rest: Tensor  # its bias with the scale


class _Form:
    """A decoder's weights laid out for a precision."""

    def __init__(
        self,
        quantizer: SplitResidualVectorQuantizer,
        attention: Attention,
        layers: Iterable[nn.Module],
        decoder: Sequence[nn.Module],
        precision: Precision,
    ):
        self.dtype, self.layout = LAYOUTS[precision]
        self.semantic = quantizer.n_semantic
        halves = (
            quantizer.semantic_residual_vector_quantizer,
            quantizer.acoustic_residual_vector_quantizer,
        )
        books = [cast(VectorQuantizer, book).codebook.embed.data for half in halves for book in half.layers]
        self.table = torch.stack(books)
        width = self.table.shape[2]
        eye = torch.eye(width, device=self.table.device)
        outs = [
            eye if isinstance(h.output_proj, nn.Identity) else h.output_proj.weight[:, :, 0] for h in halves
        ]
        self.project = self._cast(torch.cat([cast(Tensor, out).detach() for out in outs], dim=1))
        self.heads, self.key_heads = (
            len(linear.weight) // attention.head_dim for linear in (attention.q_proj, attention.k_proj)
        )
        self.window = attention.window
        self.layers = [self._layer(cast(MimiLayer | Qwen3Layer, layer)) for layer in layers]
        *steps, (activation, last, _, _) = _steps(decoder)
        self.steps = [
            _Step(_activation(act), self.conv(conv), opens, closes) for act, conv, opens, closes in steps
        ]
        self.last, self.last_conv = _activation(activation), self.conv(last)
        self.last_weight = last.conv.weight.detach()[0].T.contiguous()

    def latents(self, codes: Tensor) -> Tensor:
        """Add both quantizers' latents. (R, q, T) → (R, T, 1, C)."""
        summed = F.linear(entries(codes, self.table, self.semantic, self.dtype), self.project)
        return summed.view(codes.shape[0], codes.shape[2], 1, -1)

    def transform(
        self, x: Tensor, rows: int, rotation: Rotation, mask: Tensor, memory: Memory
    ) -> tuple[Tensor, Tensor]:
        """Run the transformer's layers. (R·T, D) float32, in place → x and what is still to add to it."""
        added: Tensor | None = None
        for layer in self.layers:
            y = self.norm(x, added, layer.norms[0])
            qkv = F.linear(y, layer.qkv).view(rows, len(x) // rows, -1)
            y = attended(qkv, rotation, mask, self.heads, self.key_heads, self.window, memory)
            y = self.norm(x, F.linear(y, layer.out), layer.norms[1])
            y = F.linear(y, layer.up)
            added = F.linear(gated(y) if layer.gated else F.gelu(y), layer.down)
        assert added is not None
        return x, added

    def norm(self, x: Tensor, added: Tensor | None, norm: RMSNorm | LayerNorm) -> Tensor:
        """Add to x in place, and compute the norm in the precision's dtype."""
        if isinstance(norm, LayerNorm):
            return add_layer_norm(x, added, norm.weight, norm.bias, norm.eps, dtype=self.dtype)
        out = x.new_empty(x.shape, dtype=self.dtype)
        return add_norm(x, added, norm.weight, norm.eps, out=out)

    def convolve(self, x: Tensor, skip: Tensor | None, memory: Memory, limit: float) -> Tensor:
        """Run the convolutions to samples. (R, T, 1, C) and a skip of it, (R·T, C) → (R, L) within ±limit."""
        bias, adds = None, skip is not None
        for step in self.steps:
            rows, length = x.shape[0], x.shape[1] * x.shape[2]
            held = step.conv.inputs(rows, length)
            more, count = skip if adds else None, step.conv.count
            summed = next_inputs(x, bias, more, step.activation, count, memory, held, sums=step.opens)
            skip = summed if step.opens else skip
            x, bias, adds = step.conv(held), step.conv.bias, step.closes
        held = self.last_conv.inputs(x.shape[0], x.shape[1] * x.shape[2])
        next_inputs(x, bias, skip if adds else None, self.last, self.last_conv.count, memory, held)
        return sound(held, self.last_weight, cast(Tensor, self.last_conv.bias), limit)

    def conv(self, layer: Convolution) -> CausalConv:
        """Lay out a convolution, also a transposed one."""
        return laid_out(layer.conv, self.dtype, self.layout)

    def _layer(self, layer: MimiLayer | Qwen3Layer) -> _Weights:
        own, mlp = layer.self_attn, layer.mlp
        ups, last = (
            ([mlp.fc1], mlp.fc2)
            if isinstance(mlp, FeedForward)
            else ([mlp.gate_proj, mlp.up_proj], mlp.down_proj)
        )
        return _Weights(
            (layer.input_layernorm, layer.post_attention_layernorm),
            self._cast(_stacked(own.q_proj, own.k_proj, own.v_proj)),
            self._cast(_scaled(own.o_proj, layer.self_attn_layer_scale.scale)),
            self._cast(_stacked(*ups)),
            self._cast(_scaled(last, layer.mlp_layer_scale.scale)),
            len(ups) > 1,
        )

    def _cast(self, weight: Tensor) -> Tensor:
        return weight.detach().to(self.dtype)


class _Qwen3(_Form):
    """The decoder of Qwen3-TTS's codec."""

    def __init__(self, codec: Qwen3Codec, precision: Precision):
        decoder = codec.decoder
        transformer = decoder.pre_transformer
        layers = cast(Sequence[Qwen3Layer], transformer.layers)
        super().__init__(decoder.quantizer, layers[0].self_attn, layers, list(decoder.decoder), precision)
        self.pre_conv, self.final = self.conv(decoder.pre_conv), transformer.norm
        first, last = transformer.input_proj, transformer.output_proj
        bias = first.bias + first.weight @ cast(Tensor, decoder.pre_conv.conv.bias)
        self.input = self._cast(first.weight), self._cast(bias)
        self.output = self._cast(last.weight), self._cast(last.bias)
        pairs = cast(Sequence[tuple[CausalConvTranspose1d, ConvNeXtBlock]], decoder.upsample)
        self.raises = [self._raise(*pair) for pair in pairs]

    def __call__(self, codes: Tensor, rotation: Rotation, mask: Tensor, memory: Memory) -> Tensor:
        rows, _, length = codes.shape
        held = self.pre_conv.inputs(rows, length)
        next_inputs(self.latents(codes), None, None, NONE, self.pre_conv.count, memory, held)
        x = F.linear(self.pre_conv(held).reshape(rows * length, -1), *self.input).float()
        x, added = self.transform(x, rows, rotation, mask, memory)
        x = F.linear(self.norm(x, added, self.final), *self.output)
        for own_raise in self.raises:
            x = F.linear(x, own_raise.weight).view(rows, length, own_raise.ratio, -1)
            y, x = depthwise_norm(
                x, own_raise.bias, own_raise.taps, own_raise.shift, own_raise.norm, own_raise.rest, memory
            )
            x.addmm_(F.gelu(F.linear(y, *own_raise.first)), own_raise.second)
            length *= own_raise.ratio
        return self.convolve(x.view(rows, length, 1, -1), None, memory, 1.0)

    def _raise(self, layer: CausalConvTranspose1d, block: ConvNeXtBlock) -> _Raise:
        weight, bias = self.conv(layer)[:2]
        norm, taps, gamma = block.norm, block.dwconv.conv, block.gamma.detach()
        return _Raise(
            weight[:, :, 0, 0].contiguous(),
            cast(Tensor, bias),
            layer.stride,
            taps.weight.detach()[:, 0].T.contiguous(),
            cast(Tensor, taps.bias).detach(),
            (norm.weight.detach(), norm.bias.detach(), norm.eps),
            (self._cast(block.pwconv1.weight), self._cast(block.pwconv1.bias)),
            self._cast(_scaled(block.pwconv2, gamma)).T,
            gamma * block.pwconv2.bias.detach(),
        )


class _Mimi(_Form):
    """The decoder of Mimi."""

    def __init__(self, codec: Mimi, precision: Precision):
        layers = cast(Sequence[MimiLayer], codec.decoder_transformer.layers)
        super().__init__(codec.quantizer, layers[0].self_attn, layers, list(codec.decoder.layers), precision)
        taps = codec.upsample.conv.weight.detach()[:, 0].T.unflatten(0, (2, STEPS))  # (2, s, C)
        self.now, self.earlier = taps.contiguous()

    def __call__(self, codes: Tensor, rotation: Rotation, mask: Tensor, memory: Memory) -> Tensor:
        latents = self.latents(codes)
        rows, length, _, channels = latents.shape
        held = latents.new_empty(rows, 1 + length, channels, dtype=torch.float32)
        next_inputs(latents, None, None, NONE, 1, memory, held)
        x = torch.addcmul(held[:, 1:, None] * self.now, held[:, :-1, None], self.earlier)
        x, added = self.transform(x.view(-1, channels), rows, rotation, mask, memory)
        return self.convolve(added.view(rows, STEPS * length, 1, -1), x, memory, float("inf"))


class FusedPieces:
    """Decodes pieces of streams as the codec's `decode_window` does, with a state of its own in one tensor.

    Weights are copied in the layout of the precision.
    """

    def __init__(self, codec: Mimi | Qwen3Codec):
        self.codec = codec
        self._forms: dict[Precision, _Mimi | _Qwen3] = {}

    @property
    def runs(self) -> bool:
        """True where kernels run; elsewhere there is no state."""
        weight = next(self.codec.parameters())
        with torch.inference_mode():
            return usable(weight) and weight.dtype == torch.float32

    @property
    def width(self) -> int:
        """Numbers of a stream's state."""
        form = self._form
        steps = [*(step.conv for step in form.steps), form.last_conv]
        if isinstance(form, _Qwen3):
            steps.append(form.pre_conv)
            more = sum((len(own_raise.taps) - 1) * own_raise.taps.shape[1] for own_raise in form.raises)
        else:
            more = len(form.project)
        head_dim = form.layers[0].qkv.shape[0] // (form.heads + 2 * form.key_heads)
        keys = 2 * len(form.layers) * (form.window - 1) * form.key_heads * head_dim
        return more + keys + sum(conv.count * conv.weight.shape[1] for conv in steps)

    @torch.inference_mode()
    def __call__(
        self, codes: Tensor, cos: Tensor, sin: Tensor, mask: Tensor, flat: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Decode a piece at places, as three tensors. (R, Q, T), (R, N) → (R, hop T), and the next state."""
        memory = Memory(flat)
        with computing("tf32" if self.codec.precision == "tf32" else "float32", codes.device):
            return self._form(codes, (cos, sin), mask, memory), memory.after

    @property
    def _form(self) -> _Mimi | _Qwen3:
        precision = self.codec.precision
        if precision not in self._forms:
            with torch.inference_mode():
                codec = self.codec
                self._forms[precision] = (
                    _Mimi(codec, precision) if isinstance(codec, Mimi) else _Qwen3(codec, precision)
                )
        return self._forms[precision]


Found = tuple[nn.Module | None, Convolution, bool, bool]


def _steps(layers: Iterable[nn.Module]) -> Iterator[Found]:
    """Yield each convolution with the activation before it, and whether a skip opens or closes around it."""
    activation = None
    for layer in layers:
        if isinstance(layer, DecoderBlock):
            yield from _steps(layer.block)
        elif isinstance(layer, ResidualUnit | ResidualBlock):
            inside = layer.block if isinstance(layer, ResidualBlock) else layer.children()
            first, opening, second, closing = inside
            yield first, cast(Convolution, opening), True, False
            yield second, cast(Convolution, closing), False, True
        elif isinstance(layer, Convolution):
            yield activation, layer, False, False
            activation = None
        else:
            activation = layer


def _activation(layer: nn.Module | None) -> Activation:
    """Make what a kernel takes of an activation."""
    if isinstance(layer, LogSnake1d):
        return Activation(
            "snake", layer.alpha.detach().exp(), (layer.beta.detach().exp() + 1e-9).reciprocal()
        )
    return NONE if layer is None else Activation("elu")


def _stacked(*linears: nn.Linear) -> Tensor:
    return torch.cat([linear.weight for linear in linears])


def _scaled(linear: nn.Linear, scale: Tensor) -> Tensor:
    return linear.weight * scale[:, None]

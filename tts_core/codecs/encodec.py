"""Configuration, tensor names and window geometry of EnCodec: the causal mono model at 24 kHz.

Source: facebookresearch/encodec 0.1.1 (MIT); names are those of transformers' EncodecModel, weight norm
folded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tts_core.config import HARMLESS, Config, Count, FileForm, Strides, at
from tts_core.errors import CheckpointError, UsageError
from tts_core.models import Network
from tts_core.nn.windows import Conv, ConvTranspose, Layer, Window, input_span
from tts_core.shapes import Module, Shapes, biased, shapes, transposed

SAMPLE_RATE = 24000  # Hz; the model's files do not state it


def codebooks_at(kbps: float, sample_rate: int, hop_length: int, codebook_size: int) -> int:
    """Count the codebooks whose codes fit `kbps` kilobits per second: 8 at 6 kbps for the published model."""
    frame_rate = -(-sample_rate // hop_length)
    return int(1000 * kbps // (frame_rate * math.ceil(math.log2(codebook_size))))


def _most_codebooks(kbps: Any, found: Any) -> int:
    if not isinstance(kbps, list | tuple) or not all(type(kbp) in (int, float) for kbp in kbps):
        raise ValueError
    return codebooks_at(
        kbps[-1], found["sample_rate"], math.prod(found["upsampling_ratios"]), max(2, found["codebook_size"])
    )


class EncodecConfig(Config, title="EnCodec config"):
    """Shape of an EnCodec. Numbers only: no dtype, device or path."""

    sample_rate: int = at("sampling_rate")  # Hz
    hidden_size: int  # width of latents and codebooks
    num_filters: int  # channels at full rate
    upsampling_ratios: Strides  # decoder order
    kernel_size: int
    last_kernel_size: int
    residual_kernel_size: int
    compress: int  # factor by which a residual block is narrower inside
    num_lstm_layers: Count
    codebook_size: int
    n_codebooks: Count = at("target_bandwidths", convert=_most_codebooks)

    def faults(self) -> Iterator[str]:
        """Check widths."""
        if self.compress > self.num_filters:
            yield f"{self.num_filters} channels cannot be narrowed {self.compress} times"

    @property
    def hop_length(self) -> int:
        """Samples per frame."""
        return math.prod(self.upsampling_ratios)

    @property
    def frame_rate(self) -> float:
        """Frames per second."""
        return self.sample_rate / self.hop_length

    @property
    def width(self) -> int:
        """Channels at frame rate, the LSTMs' width."""
        return self.num_filters * 2 ** len(self.upsampling_ratios)


def check_codebooks(config: EncodecConfig, count: int) -> None:
    """Raise UsageError unless `count` is between 1 and the model's number of codebooks."""
    if not 1 <= count <= config.n_codebooks:
        raise UsageError(f"EnCodec: {count} codebooks; give 1 to {config.n_codebooks}")


_WEIGHT = re.compile(
    r"(encoder|decoder)\.(?:model|layers)\.(\d+)\.(?:(block\.1|block\.3|shortcut)\.)?"
    r"(?:conv\.conv|convtr\.convtr|conv)\.(?:weight_v|weight|parametrizations\.weight\.original1)"
)
_LSTM = re.compile(r"encoder\.(?:model|layers)\.\d+\.lstm\.weight_ih_l\d+")
_CODEBOOK = re.compile(r"quantizer\.(?:vq\.)?layers\.\d+\.(?:_codebook|codebook)\.embed")


def from_shapes(shapes: Mapping[str, tuple[int, ...]], *, sample_rate: int = SAMPLE_RATE) -> EncodecConfig:
    """Read the configuration from tensor names and shapes, in either published layout.

    A .th file has no other source.  Raises CheckpointError if the tensors are not those of a mono EnCodec.
    """
    convs: dict[str, list[tuple[int, ...]]] = {"None": [], "block.1": [], "block.3": [], "shortcut": []}
    found = [(match, shape) for name, shape in shapes.items() if (match := _WEIGHT.fullmatch(name))]
    for match, shape in sorted(found, key=lambda item: int(item[0][2])):
        if match[1] == "encoder" and len(shape) == 3:
            convs[str(match[3])].append(shape)
    stages, inner = convs["None"], convs["block.1"]
    books = [shape for name, shape in shapes.items() if _CODEBOOK.fullmatch(name)]
    if len(stages) < 3 or len(inner) != len(stages) - 2 or not books or len(books[0]) != 2:
        raise CheckpointError(
            f"EnCodec: {len(stages)} encoder convolutions, {len(inner)} residual blocks and {len(books)} "
            "codebooks among the tensors; expected two convolutions more than blocks, and a codebook"
        )
    if stages[0][1] != 1:
        raise CheckpointError(f"EnCodec: {stages[0][1]} audio channels; only the mono model is supported")
    return EncodecConfig(
        sample_rate=sample_rate,
        hidden_size=stages[-1][0],
        num_filters=stages[0][0],
        upsampling_ratios=tuple(kernel // 2 for _, _, kernel in stages[-2:0:-1]),
        kernel_size=stages[0][2],
        last_kernel_size=stages[-1][2],
        residual_kernel_size=inner[0][2],
        compress=_compress([(shape[1], shape[0]) for shape in inner]),
        num_lstm_layers=sum(bool(_LSTM.fullmatch(name)) for name in shapes),
        n_codebooks=len(books),
        codebook_size=books[0][0],
    )


def _compress(widths: list[tuple[int, int]]) -> int:
    """Find the divisor between the width of every residual block and its inner width."""
    if min(inner for _, inner in widths) > 0:  # outer // c is inner for c from outer // (inner + 1) + 1
        least = max(outer // (inner + 1) + 1 for outer, inner in widths)
        if all(least <= outer // inner for outer, inner in widths):
            return least
    raise CheckpointError(f"EnCodec: residual blocks narrow {widths}, not by one common divisor")


_FIXED = {  # the only supported values
    "audio_channels": 1,
    "normalize": False,
    "chunk_length_s": None,
    "num_residual_layers": 1,
    "norm_type": "weight_norm",
    "use_causal_conv": True,
    "use_conv_shortcut": True,
    "pad_mode": "reflect",
    "trim_right_ratio": 1.0,
}
_TRANSFORMERS = FileForm(
    "EnCodec config.json",
    # dilations of residual layers after the first; overlap of chunks
    unused={"": (*HARMLESS, "dilation_growth_rate", "overlap")},
    fixed=_FIXED,
    equal={"codebook_dim": "hidden_size"},
    needs=_FIXED,
    support="only the causal mono EnCodec is supported",
)


def read_transformers(config: Mapping[str, Any]) -> EncodecConfig:
    """Read the configuration from the config.json of a transformers EncodecModel."""
    return EncodecConfig.read(_TRANSFORMERS, config)


def parameter_shapes(config: EncodecConfig) -> Shapes:
    """Map canonical names to PyTorch shapes."""

    def residual(width: int) -> Module:
        inner = width // config.compress
        return {
            "block.1.conv": biased(inner, width, config.residual_kernel_size),
            "block.3.conv": biased(width, inner, 1),
            "shortcut.conv": biased(width, width, 1),
        }

    width, latent, rows = config.width, config.hidden_size, 4 * config.width
    lstm = dict[str, Module]()
    for layer in range(config.num_lstm_layers):
        for kind in ("ih", "hh"):
            lstm |= {f"weight_{kind}_l{layer}": (rows, width), f"bias_{kind}_l{layer}": (rows,)}
    outs = [width >> i for i in range(1, len(config.upsampling_ratios) + 1)]
    first, last = config.kernel_size, config.last_kernel_size
    stages = list(zip(outs, config.upsampling_ratios, strict=True))
    encoder: dict[str, Module] = {"0.conv": biased(config.num_filters, 1, first)}
    for i, (narrow, stride) in enumerate(stages[::-1]):
        encoder[f"{3 * i + 1}"] = residual(narrow)
        encoder[f"{3 * i + 3}.conv"] = biased(2 * narrow, narrow, 2 * stride)
    end = 3 * len(stages)
    encoder |= {f"{end + 1}.lstm": lstm, f"{end + 3}.conv": biased(latent, width, last)}
    decoder: dict[str, Module] = {"0.conv": biased(width, latent, first), "1.lstm": lstm}
    for index, (narrow, stride) in zip(transposed_layers(config), stages, strict=True):
        decoder[f"{index}.conv"] = transposed(2 * narrow, narrow, 2 * stride)
        decoder[f"{index + 1}"] = residual(narrow)
    decoder[f"{end + 3}.conv"] = biased(1, config.num_filters, last)
    books: Module = [{"codebook.embed": (config.codebook_size, latent)}] * config.n_codebooks
    return shapes({"encoder.layers": encoder, "quantizer.layers": books, "decoder.layers": decoder})


def transposed_layers(config: EncodecConfig) -> range:
    """Return the indices of the transposed convolutions among the decoder's layers."""
    return range(3, 3 * len(config.upsampling_ratios) + 1, 3)


def _residual_layers(config: EncodecConfig) -> list[Layer]:
    return [Conv(config.residual_kernel_size, padding=config.residual_kernel_size - 1), Conv(1)]


def _encoder_layers(config: EncodecConfig) -> list[Layer]:
    """List the causal convolutions from samples to the LSTM."""
    layers: list[Layer] = [Conv(config.kernel_size, padding=config.kernel_size - 1)]
    for stride in config.upsampling_ratios[::-1]:
        layers += [*_residual_layers(config), Conv(2 * stride, stride, padding=stride)]
    return layers


def _decoder_layers(config: EncodecConfig) -> list[Layer]:
    """List the causal convolutions from the LSTM to samples."""
    layers: list[Layer] = []
    for stride in config.upsampling_ratios:
        layers += [ConvTranspose(2 * stride, stride), *_residual_layers(config)]
    return [*layers, Conv(config.last_kernel_size, padding=config.last_kernel_size - 1)]


def encode_tail(config: EncodecConfig) -> int:
    """Count the frames before a window that the encoder's last convolution reads from the LSTM."""
    return config.last_kernel_size - 1


def decode_tail(config: EncodecConfig) -> int:
    """Count the frames before a window that the decoder's convolutions read from the LSTM."""
    return -input_span(_decoder_layers(config), 0, config.hop_length)[0]


def widest(config: EncodecConfig, frames: int) -> int:
    """Count the elements of the largest tensor between the convolutions: the same in both directions."""
    return config.num_filters * frames * config.hop_length


def encode_windows(config: EncodecConfig, frames: int, largest: int) -> list[Window]:
    """Cut an encode into windows of frames; samples from `first` on feed the convolutions before the LSTM."""
    before = -(input_span(_encoder_layers(config), 0, config.hop_length)[0] // config.hop_length)
    return _causal_windows(config, frames, largest, before)


def decode_windows(config: EncodecConfig, frames: int, largest: int) -> list[Window]:
    """Cut a decode into windows of frames; codes from `first` on feed the convolution before the LSTM."""
    return _causal_windows(config, frames, largest, config.kernel_size - 1)


def _causal_windows(config: EncodecConfig, frames: int, largest: int, before: int) -> list[Window]:
    """Cut frames into windows that read nothing later, except for the mirrored start of the signal: the first
    window is long enough to include it.
    """
    mirrored = max(config.kernel_size, config.last_kernel_size, config.residual_kernel_size, 2)
    size = max(largest, mirrored)
    cuts = [(start, min(start + size, frames)) for start in range(0, frames, size)]
    return [Window(start, stop, max(0, start - before), stop) for start, stop in cuts]


# encodec_24khz-d7cc33bc.th and facebook/encodec_24khz
ENCODEC_24KHZ = EncodecConfig(
    sample_rate=24000,
    hidden_size=128,
    num_filters=32,
    upsampling_ratios=(8, 5, 4, 2),
    kernel_size=7,
    last_kernel_size=7,
    residual_kernel_size=3,
    compress=2,
    num_lstm_layers=2,
    n_codebooks=32,
    codebook_size=1024,
)

NETWORK = Network(
    title="EnCodec (the codec)",
    folder="codec",
    network="codecs.encodec:Encodec",
    parameter_shapes=parameter_shapes,
    read_converted=EncodecConfig.from_dict,
    repository="facebook/encodec_24khz",
)

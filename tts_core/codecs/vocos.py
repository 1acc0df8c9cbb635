"""Configuration, tensor names and window geometry of Vocos, the vocoder that reads EnCodec's codes.

Source: gemelo-ai/vocos 0.1.0 (MIT) and charactr/vocos-encodec-24khz; names are the published ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tts_core.codecs.encodec import EncodecConfig
from tts_core.config import Config, Count, FileForm, at
from tts_core.errors import CheckpointError, UsageError
from tts_core.files.yaml_object import parse_yaml
from tts_core.models import Network
from tts_core.nn.windows import Conv, ConvTranspose, Layer, Window, input_span
from tts_core.shapes import Shapes, biased, shapes, weight

KERNEL = 7  # of every convolution
NORM_EPS = 1e-6
LARGEST_MAGNITUDE = 100.0
SAMPLE_RATE, CODEBOOK_SIZE = 24000, 1024  # Hz and codes per codebook of encodec_24khz


class VocosConfig(Config, title="Vocos config"):
    """Shape of a Vocos. Numbers only: no dtype, device or path."""

    sample_rate: int  # Hz
    n_codebooks: Count
    codebook_size: int
    input_channels: int = at("backbone.init_args.input_channels")  # width of a codebook's entries
    dim: int = at("backbone.init_args.dim")
    intermediate_dim: int = at("backbone.init_args.intermediate_dim")
    num_layers: Count = at("backbone.init_args.num_layers")
    num_bandwidths: int = at("backbone.init_args.adanorm_num_embeddings")  # rows of the norms' tables
    n_fft: int = at("head.init_args.n_fft")
    hop_length: int = at("head.init_args.hop_length")  # samples per frame

    def faults(self) -> Iterator[str]:
        """Check the spectrum's sizes."""
        if self.n_fft % 2 or self.hop_length % 2 or self.hop_length >= self.n_fft:
            yield f"n_fft {self.n_fft} must be even, and hop_length {self.hop_length} even and smaller"

    @property
    def frame_rate(self) -> float:
        """Frames per second."""
        return self.sample_rate / self.hop_length

    @property
    def n_bins(self) -> int:
        """Bins of a one-sided spectrum."""
        return self.n_fft // 2 + 1


def read_yaml(text: str) -> dict[str, Any]:
    """Parse the mapping in a config.yaml. Raises CheckpointError where there is none."""
    return parse_yaml(text, "Vocos config.yaml")


_CLASSES = {
    "feature_extractor.class_path": "vocos.feature_extractors.EncodecFeatures",
    "backbone.class_path": "vocos.models.VocosBackbone",
    "head.class_path": "vocos.heads.ISTFTHead",
}
_CODEC = "feature_extractor.init_args.encodec_model"
_FILE = FileForm(
    "Vocos config.yaml",
    unused={
        "feature_extractor.init_args": ("bandwidths", "train_codebooks"),
        "backbone.init_args": ("layer_scale_init_value",),
        "head.init_args": (),
    },
    fixed=_CLASSES | {_CODEC: "encodec_24khz", "head.init_args.padding": "same"},
    equal={"head.init_args.dim": "dim"},
    needs=(*_CLASSES, _CODEC, "head.init_args.dim"),
)


def read_published(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> VocosConfig:
    """Read the configuration from `read_yaml`'s result and tensor shapes; only these give the codebooks.

    Raises CheckpointError for other variants of Vocos, and if the two do not match.
    """
    table = "feature_extractor.codebook_weights"
    rows = (shapes.get(table) or (0,))[0]
    if rows == 0 or rows % CODEBOOK_SIZE:
        raise CheckpointError(f"Vocos: {table} has {rows} rows, expected whole books of {CODEBOOK_SIZE}")
    return VocosConfig.read(
        _FILE,
        config,
        sample_rate=SAMPLE_RATE,
        n_codebooks=rows // CODEBOOK_SIZE,
        codebook_size=CODEBOOK_SIZE,
    )


def check_request(config: VocosConfig, n_codebooks: int, bandwidth_id: int) -> None:
    """Raise UsageError unless the model has this many codebooks and this bandwidth."""
    if not 1 <= n_codebooks <= config.n_codebooks:
        raise UsageError(f"Vocos: codes of {n_codebooks} codebooks; give 1 to {config.n_codebooks}")
    if not 0 <= bandwidth_id < config.num_bandwidths:
        raise UsageError(f"Vocos: bandwidth_id {bandwidth_id}; give 0 to {config.num_bandwidths - 1}")


def parameter_shapes(config: VocosConfig) -> Shapes:
    """Map canonical names to PyTorch shapes."""
    dim, inner, latent = config.dim, config.intermediate_dim, config.input_channels
    norm = {part: weight(config.num_bandwidths, dim) for part in ("scale", "shift")}
    block = {
        "gamma": (dim,),
        "dwconv": biased(dim, 1, KERNEL),
        "norm": norm,
        "pwconv1": biased(inner, dim),
        "pwconv2": biased(dim, inner),
    }
    return shapes(
        {
            "feature_extractor.codebook_weights": (config.n_codebooks * config.codebook_size, latent),
            "backbone.embed": biased(dim, latent, KERNEL),
            "backbone.norm": norm,
            "backbone.convnext": [block] * config.num_layers,
            "backbone.final_layer_norm": biased(dim),
            "head.out": biased(2 * config.n_bins, dim),
        }
    )


def decode_window(config: VocosConfig, start: int, stop: int, frames: int) -> Window:
    """Find the frames to feed for the samples of frames [start, stop) out of `frames`."""
    first, last = _span(config, start, stop)
    return Window(start, stop, max(0, first), min(frames, last))


def live_elements(config: VocosConfig, frames: int) -> int:
    """Count the numbers live at once while a window of this many frames, context included, is decoded."""
    frames += 2 * decode_lookahead(config)
    row = 2 * config.intermediate_dim + 4 * config.dim + 6 * config.n_bins + 3 * config.n_fft
    return frames * row + 2 * config.n_bins * config.n_fft


def decode_lookahead(config: VocosConfig) -> int:
    """Count the frames after the last wanted one that must be known before its samples are final."""
    return _span(config, 0, 1)[1] - 1


def _span(config: VocosConfig, start: int, stop: int) -> tuple[int, int]:
    """Find the input span through the convolutions and the inverse transform's overlapping windows."""
    hop = config.hop_length
    overlap = ConvTranspose(config.n_fft, hop, padding=(config.n_fft - hop) // 2)
    layers: list[Layer] = [Conv(KERNEL, padding=KERNEL // 2)] * (config.num_layers + 1)
    return input_span([*layers, overlap], start * hop, stop * hop)


def check_fits(config: VocosConfig, codec: EncodecConfig, title: str, books: int, size: int) -> None:
    """Raise CheckpointError unless Vocos and EnCodec fit the codes of a model and have the same frames.

    title: of the model.  books: number of its codebooks, of `size` codes each.
    """
    for name, held in (("EnCodec", codec), ("Vocos", config)):
        if held.n_codebooks < books or held.codebook_size != size:
            raise CheckpointError(
                f"{name}: {held.n_codebooks} codebooks of {held.codebook_size} codes, {title} needs "
                f"{books} of {size}; use the one of its release"
            )
    frames = [(held.sample_rate, held.hop_length) for held in (codec, config)]
    if frames[0] != frames[1]:
        raise CheckpointError(
            f"{title}: EnCodec and Vocos have {frames[0][0]} and {frames[1][0]} Hz, "
            f"{frames[0][1]} and {frames[1][1]} samples per frame"
        )


# charactr/vocos-encodec-24khz
VOCOS_ENCODEC_24KHZ = VocosConfig(
    sample_rate=24000,
    n_codebooks=16,
    codebook_size=1024,
    input_channels=128,
    dim=384,
    intermediate_dim=1152,
    num_layers=8,
    num_bandwidths=4,
    n_fft=1280,
    hop_length=320,
)

NETWORK = Network(
    title="Vocos (the vocoder)",
    folder="vocoder",
    network="codecs.vocos:Vocos",
    parameter_shapes=parameter_shapes,
    read_converted=VocosConfig.from_dict,
    descriptions=("config.yaml",),
    repository="charactr/vocos-encodec-24khz",
    license="mit",
)

"""Configuration, tensor names and window geometry of Vocos, the vocoder that reads EnCodec's codes.

Source: gemelo-ai/vocos 0.1.0 (MIT) and charactr/vocos-encodec-24khz; names are the published ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tts_core.codecs.encodec import EncodecConfig
from tts_core.config import MOST_LAYERS, check_numbers, exact_fields, mapping
from tts_core.errors import CheckpointError, UsageError
from tts_core.files.yaml_object import parse_yaml
from tts_core.models import Network
from tts_core.nn.windows import Conv, ConvTranspose, Layer, Window, input_span
from tts_core.printable import named

KERNEL = 7  # of every convolution
NORM_EPS = 1e-6
LARGEST_MAGNITUDE = 100.0
CODECS = {"encodec_24khz": (24000, 1024)}  # sample rate in Hz, codes per codebook


@dataclass(frozen=True)
class VocosConfig:
    """Shape of a Vocos. Numbers only: no dtype, device or path."""

    sample_rate: int  # Hz
    n_codebooks: int
    codebook_size: int
    input_channels: int  # width of a codebook's entries
    dim: int
    intermediate_dim: int
    num_layers: int
    num_bandwidths: int  # rows of the norms' tables
    n_fft: int
    hop_length: int  # samples per frame

    def __post_init__(self) -> None:
        check_numbers(self, "Vocos config")
        if max(self.num_layers, self.n_codebooks) > MOST_LAYERS:
            raise CheckpointError(f"Vocos config: more than {MOST_LAYERS} layers or codebooks")
        if self.n_fft % 2 or self.hop_length % 2 or self.hop_length >= self.n_fft:
            raise CheckpointError(
                f"Vocos config: n_fft {self.n_fft} must be even, and hop_length {self.hop_length} even and "
                "smaller"
            )

    @property
    def frame_rate(self) -> float:
        """Frames per second."""
        return self.sample_rate / self.hop_length

    @property
    def n_bins(self) -> int:
        """Bins of a one-sided spectrum."""
        return self.n_fft // 2 + 1

    def to_dict(self) -> dict[str, Any]:
        """Return our own schema, as `read_converted` reads it."""
        return asdict(self)


def read_yaml(text: str) -> dict[str, Any]:
    """Parse the mapping in a config.yaml. Raises CheckpointError where there is none."""
    return parse_yaml(text, "Vocos config.yaml")


def read_published(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> VocosConfig:
    """Read the configuration from `read_yaml`'s result and tensor shapes; only these give the codebooks.

    Raises CheckpointError for other variants of Vocos, and if the two do not match.
    """
    config = mapping(config, "Vocos config.yaml")
    features, backbone, head = (_section(config, *each) for each in _SECTIONS.items())
    codec = features["encodec_model"]
    if codec not in CODECS:
        known = ", ".join(CODECS)
        raise CheckpointError(f"Vocos config.yaml: encodec_model {codec!r:.40}, expected {known}")
    if head.get("padding", "same") != "same":
        raise CheckpointError(f"Vocos config.yaml: padding {head['padding']!r:.40}, expected 'same'")
    if head["dim"] != backbone["dim"]:
        raise CheckpointError(
            f"Vocos config.yaml: head of dim {head['dim']!r:.40} on {backbone['dim']!r:.40}"
        )
    sample_rate, codebook_size = CODECS[codec]
    table = "feature_extractor.codebook_weights"
    rows = (shapes.get(table) or (0,))[0]
    if rows == 0 or rows % codebook_size:
        raise CheckpointError(f"Vocos: {table} has {rows} rows, expected whole books of {codebook_size}")
    return VocosConfig(
        sample_rate=sample_rate,
        n_codebooks=rows // codebook_size,
        codebook_size=codebook_size,
        input_channels=backbone["input_channels"],
        dim=backbone["dim"],
        intermediate_dim=backbone["intermediate_dim"],
        num_layers=backbone["num_layers"],
        num_bandwidths=backbone["adanorm_num_embeddings"],
        n_fft=head["n_fft"],
        hop_length=head["hop_length"],
    )


def check_request(config: VocosConfig, n_codebooks: int, bandwidth_id: int) -> None:
    """Raise UsageError unless the model has this many codebooks and this bandwidth."""
    if not 1 <= n_codebooks <= config.n_codebooks:
        raise UsageError(f"Vocos: codes of {n_codebooks} codebooks; give 1 to {config.n_codebooks}")
    if not 0 <= bandwidth_id < config.num_bandwidths:
        raise UsageError(f"Vocos: bandwidth_id {bandwidth_id}; give 0 to {config.num_bandwidths - 1}")


# section → class, required arguments, optional arguments
_SECTIONS = {
    "feature_extractor": (
        "vocos.feature_extractors.EncodecFeatures",
        ("encodec_model",),
        ("bandwidths", "train_codebooks"),
    ),
    "backbone": (
        "vocos.models.VocosBackbone",
        ("input_channels", "dim", "intermediate_dim", "num_layers", "adanorm_num_embeddings"),
        ("layer_scale_init_value",),
    ),
    "head": ("vocos.heads.ISTFTHead", ("dim", "n_fft", "hop_length"), ("padding",)),
}


def _section(
    config: Mapping[str, Any], name: str, expected: tuple[str, tuple[str, ...], tuple[str, ...]]
) -> Mapping[str, Any]:
    """Read the arguments of one section and check them against its class."""
    kind, needed, optional = expected
    where = f"Vocos config.yaml: {name}"
    section = mapping(config.get(name), where)
    if section.get("class_path") != kind:
        raise CheckpointError(f"{where} is {section.get('class_path')!r:.80}, expected {kind}")
    given = mapping(section.get("init_args"), f"{where}.init_args")
    missing = ", ".join(sorted(set(needed) - set(given)))
    unknown = named(set(given) - set(needed) - set(optional))
    if missing or unknown:
        faults = [f"missing {missing}"] * bool(missing) + [f"unknown {unknown}"] * bool(unknown)
        raise CheckpointError(f"{where}.init_args: {'; '.join(faults)}")
    return given


def read_converted(config: Mapping[str, Any]) -> VocosConfig:
    """Read our own schema; the error names every unknown and missing field."""
    return VocosConfig(**exact_fields(VocosConfig, config, "Vocos config.json"))


def parameter_shapes(config: VocosConfig) -> dict[str, tuple[int, ...]]:
    """Map canonical names to shapes in PyTorch's layout: convolutions (out, in / groups, k)."""
    dim, inner = config.dim, config.intermediate_dim
    shapes: dict[str, tuple[int, ...]] = {
        "feature_extractor.codebook_weights": (
            config.n_codebooks * config.codebook_size,
            config.input_channels,
        ),
        "backbone.embed.weight": (dim, config.input_channels, KERNEL),
        "backbone.embed.bias": (dim,),
    }

    def norm(at: str) -> None:
        shapes.update({f"{at}.{part}.weight": (config.num_bandwidths, dim) for part in ("scale", "shift")})

    norm("backbone.norm")
    for i in range(config.num_layers):
        at = f"backbone.convnext.{i}"
        shapes |= {
            f"{at}.gamma": (dim,),
            f"{at}.dwconv.weight": (dim, 1, KERNEL),
            f"{at}.dwconv.bias": (dim,),
        }
        norm(f"{at}.norm")
        shapes |= {f"{at}.pwconv1.weight": (inner, dim), f"{at}.pwconv1.bias": (inner,)}
        shapes |= {f"{at}.pwconv2.weight": (dim, inner), f"{at}.pwconv2.bias": (dim,)}
    shapes |= {f"backbone.final_layer_norm.{kind}": (dim,) for kind in ("weight", "bias")}
    return shapes | {"head.out.weight": (2 * config.n_bins, dim), "head.out.bias": (2 * config.n_bins,)}


def mlx_axes(name: str, rank: int) -> tuple[int, ...] | None:
    """Return the axis order that turns a tensor of `parameter_shapes` into MLX's channels-last layout; None
    if it is the same.
    """
    return (0, 2, 1) if rank == 3 else None


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
    read_converted=read_converted,
    mlx_axes=lambda config, name, rank: mlx_axes(name, rank),
    descriptions=("config.yaml",),
    repository="charactr/vocos-encodec-24khz",
    license="mit",
)

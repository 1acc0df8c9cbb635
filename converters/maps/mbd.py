"""Map of multi-band diffusion: audiocraft's names, which begin with the band's number."""

from __future__ import annotations

from converters.maps.layouts import Layout
from converters.rules.plan import Drop, Rule
from tts_core.codecs.mbd import MbdConfig, read_published

NAMES = r"\d+\.(model_state|processor_state)\."

_BLOCK = [f"{kind}{half}.{end}" for half in (1, 2) for kind in ("norm", "conv") for end in ("weight", "bias")]
_LEVEL = ["norm.weight", "norm.bias", *[f"res_blocks.{{}}.{name}" for name in _BLOCK]]
_UNET = [
    *[f"encoders.{{}}.{name}" for name in ("conv.weight", *_LEVEL)],
    *[f"decoders.{{}}.{name}" for name in (*_LEVEL, "convtr.weight")],
    "embedding.weight",
    "conv_codec.weight",
    "conv_codec.bias",
]
_FILTERS = Drop(
    "{}.processor_state.split_bands.lowpass.filters", why="computed from the number of bands", optional=True
)


def rules(config: MbdConfig) -> list[Rule | Drop]:
    """Keep the names within a band."""
    unet = [*_UNET, "embeddings.{}.weight"] if any(b.unet.depth > 1 for b in config.bands) else _UNET
    found: list[Rule | Drop] = [Rule(f"{{}}.model_state.{name}", f"bands.{{}}.unet.{name}") for name in unet]
    if any(band.processor for band in config.bands):
        for name in ("counts", "sum_x", "sum_x2", "sum_target_x2"):
            found.append(Rule(f"{{}}.processor_state.{name}", f"bands.{{}}.processor.{name}"))
    return [*found, _FILTERS]


# its settings are in the file, beside its tensors
LAYOUTS = {"mbd": Layout("mbd", NAMES, rules, lambda found: read_published(found.checkpoint.metadata))}

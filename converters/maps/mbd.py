"""Map of multi-band diffusion: audiocraft's names, which begin with the band's number."""

from __future__ import annotations

from converters.maps.layouts import Layout
from converters.rules.assignment import Drop, Rule
from tts_core.codecs.mbd import MbdConfig, parameter_shapes, read_published

NAMES = r"\d+\.(model_state|processor_state)\."

_STATES = {"unet": "model_state", "processor": "processor_state"}
_FILTERS = Drop(
    "{}.processor_state.split_bands.lowpass.filters", why="computed from the number of bands", optional=True
)


def rules(config: MbdConfig) -> list[Rule | Drop]:
    """Keep the names within a band."""
    found = list[Rule | Drop]()
    for name in parameter_shapes(config):
        _, band, part, own = name.split(".", 3)
        found.append(Rule(f"{band}.{_STATES[part]}.{own}", name))
    return [*found, _FILTERS]


# its settings are in the file, beside its tensors
LAYOUTS = {"mbd": Layout("mbd", NAMES, rules, lambda found: read_published(found.checkpoint.metadata))}

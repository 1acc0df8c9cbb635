"""Map of Qwen3-TTS: the published names are the canonical ones."""

from __future__ import annotations

from converters.rules.plan import Drop, Rule
from tts_core.qwen3.config import Qwen3Config, parameter_shapes


def rules(config: Qwen3Config) -> list[Rule | Drop]:
    """Map every name to itself; there are no others."""
    return [Rule(name, name) for name in parameter_shapes(config)]

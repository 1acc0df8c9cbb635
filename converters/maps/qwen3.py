"""Map of Qwen3-TTS: the published names are the canonical ones."""

from __future__ import annotations

from converters.maps.layouts import Found, Layout
from converters.rules.plan import Drop, Rule
from tts_core.qwen3.config import Qwen3Config, parameter_shapes, read_published
from tts_core.qwen3.sampling import GENERATION
from tts_core.qwen3.tokenizer import FILES

NAMES = (
    r"talker\.(model|text_projection|codec_head|code_predictor)\."
    r"|speaker_encoder\.(blocks\.\d+|mfa|asp|fc)\."
)
FILE = "config.json"


def rules(config: Qwen3Config) -> list[Rule | Drop]:
    """Map every name to itself; there are no others."""
    return [Rule(name, name) for name in parameter_shapes(config)]


def config_missing(found: Found) -> str | None:
    """Return config.json if there is none of this model."""
    return None if "talker_config" in found.json(FILE) else FILE


def read(found: Found) -> Qwen3Config:
    """Read the config.json beside the file."""
    return read_published(found.json(FILE))


def documents(found: Found) -> dict[str, str]:
    """Return the tokenizer's files and the settings of draws."""
    return {name: found.text(name) for name in (*FILES, GENERATION)}


LAYOUTS = {"qwen3_published": Layout("qwen3", NAMES, rules, read, config_missing, documents)}

"""Map of Qwen3-TTS: the published names are the canonical ones."""

from __future__ import annotations

import re

from converters.files.readers import Checkpoint
from converters.maps.layouts import Layout, config_where
from converters.rules.assignment import Drop, Rule, same_names
from tts_core.qwen3 import speaker
from tts_core.qwen3.config import Qwen3Config, parameter_shapes, read_published
from tts_core.qwen3.layout import GENERATION
from tts_core.qwen3.tokenizer import FILES

NAMES = (
    r"talker\.(model|text_projection|codec_head|code_predictor)\."
    r"|speaker_encoder\.(blocks\.\d+|mfa|asp|fc)\."
)


def rules(config: Qwen3Config) -> list[Rule | Drop]:
    """Map every name to itself. Tensors of a Base's speaker encoder have no use elsewhere."""
    found = same_names(parameter_shapes(config))
    if config.speaker_encoder is not None:
        return found
    names = dict.fromkeys(
        re.sub(r"\b\d+\b", "{}", name) for name in speaker.parameter_shapes(speaker.DEFAULT)
    )
    why = f"left from the Base that it was made of; a model of the mode {config.mode} takes no recording"
    return [*found, *(Drop(f"speaker_encoder.{name}", why, optional=True) for name in names)]


def is_converted(checkpoint: Checkpoint) -> bool:
    """Return True for MLX's form: by its metadata, by scales, or by a convolution with channels last."""
    shape = checkpoint.shapes.get("speaker_encoder.fc.weight", ())  # its kernel is 1 wide
    scales = any(name.endswith(".scales") for name in checkpoint.shapes)
    return scales or checkpoint.metadata.get("format") == "mlx" or (shape[1:2] == (1,) != shape[2:])


LAYOUTS = {
    "qwen3_published": Layout(
        "qwen3",
        NAMES,
        rules,
        lambda found: read_published(found.json("config.json")),
        config_where(lambda config: "talker_config" in config),
        documents=lambda found: {name: found.text(name) for name in (*FILES, GENERATION)},
        is_converted=is_converted,
    )
}

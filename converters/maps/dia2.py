"""The map of Dia2: the published names are the canonical ones, but for gaps in the numbers of weight sets."""

from __future__ import annotations

import re

from converters.maps.layouts import Found, Layout, config_where
from converters.rules.assignment import Drop, Rule
from tts_core.codecs.mimi import NETWORK
from tts_core.dia2.config import Dia2Config, parameter_shapes, read_published
from tts_core.dia2.tokenizer import ASSETS_FILE, CONFIG_FILE, FILE, Dia2Tokenizer, bos_id
from tts_core.errors import CheckpointError

NAMES = (
    r"transformer\.(audio_embeds\.\d|text_embed\.|layers\.\d+\.(pre_norm|attn|post_norm|mlp)|norm\.|action_head\.)"
    r"|transformer\.cb0_head\.|depformer\.(audio_embeds|text_embed|depformer_in|layers|norm|logits)\."
)

READ = {
    "config": "config.json",
    "weights": "model.safetensors",
    "tokenizer": None,
    "mimi": NETWORK.repository,
}

_SET = re.compile(r"^(depformer\.(?:depformer_in|layers\.\d+\.self_attention\.(?:in|out)_proj)\.)(\d+)")


def rules(config: Dia2Config) -> list[Rule | Drop]:
    """Map the published names. A set of weights is numbered by its place among the ids of the schedule."""

    def published(name: str) -> str:
        return _SET.sub(lambda found: f"{found[1]}{config.weight_sets[int(found[2])]}", name)

    return [Rule(published(name), name) for name in parameter_shapes(config)]


def check_assets(found: Found) -> None:
    """Check the list of the release's files, where there is one. Raises CheckpointError if it names others
    than those that are read.
    """
    listed = found.json(ASSETS_FILE)
    faults = [f"{name!r:.40} is unknown" for name in listed if name not in READ]
    for name, read in READ.items():
        if read is not None and listed.get(name, read) != read:
            faults.append(f"{name} is {listed[name]!r:.60}, read is {read}")
    if faults:
        raise CheckpointError(
            f"{ASSETS_FILE}: {'; '.join(faults)}; put the files in place (the codec with --codec) "
            "and remove it"
        )


def read(found: Found) -> Dia2Config:
    """Read config.json, and BOS from the tokenizer's files."""
    check_assets(found)
    tokenizer = Dia2Tokenizer(found.text(FILE))
    return read_published(found.json("config.json"), text_bos_id=bos_id(tokenizer, found.json(CONFIG_FILE)))


LAYOUTS = {
    "dia2_published": Layout(
        "dia2",
        NAMES,
        rules,
        read,
        config_where(bool),
        documents=lambda found: {FILE: found.text(FILE)},  # its other files repeat it
    )
}

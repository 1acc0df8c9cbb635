"""Maps of MetaVoice's networks: the published names are canonical."""

from __future__ import annotations

import json
from collections.abc import Mapping

from converters.maps.layouts import Found, Layout, canonical
from converters.rules.assignment import Drop, Rule, same_names
from converters.rules.transforms import TIED
from tts_core.metavoice.config import (
    FirstStageConfig,
    first_stage_parameter_shapes,
    read_first_stage,
    read_second_stage,
    read_speaker_encoder,
)
from tts_core.metavoice.model import TOKENIZER
from tts_core.metavoice.text import read_published

_SHARED = r"transformer\.(wpe|ln_f|h\.\d+\.(ln_[12]|attn|mlp\.c_proj))\.|speaker_cond_pos\.|lm_heads\."
FIRST_STAGE_NAMES = rf"{_SHARED}|transformer\.wtes\.0\.|transformer\.h\.\d+\.mlp\.swiglu\."
SECOND_STAGE_NAMES = rf"{_SHARED}|transformer\.wtes\.\d+\.|transformer\.h\.\d+\.mlp\.c_fc\."

_TRAINING = "of its training"
_UNREAD = {
    "optimizer": f"the optimizer's state, {_TRAINING}",
    "iter_num": f"number of steps {_TRAINING}",
    "best_val_loss": f"loss {_TRAINING}",
}
_EMBEDDING, _HEAD = "transformer.wtes.0.weight", "lm_heads.0.weight"


def first_stage_rules(config: FirstStageConfig) -> list[Rule | Drop]:
    """Keep every name; the head is the token embedding and is stored once."""
    names = [name for name in first_stage_parameter_shapes(config) if name != _EMBEDDING]
    return [Rule((_EMBEDDING, _HEAD), _EMBEDDING, TIED), *same_names(names)]


SPEAKER_ENCODER_NAMES = r"lstm\.(weight|bias)_(ih|hh)_l\d+$|linear\.(weight|bias)$|similarity_(weight|bias)$"
_SPEAKER_UNREAD = {
    "optimizer_state": "the optimizer's state, of its training",
    "step": "number of steps of its training",
}


_LOSS = [
    Drop(f"similarity_{kind}", "scales the loss of its training", optional=True)
    for kind in ("weight", "bias")
]


def _tokenizer(found: Found) -> dict[str, str]:
    held = found.checkpoint.metadata.get("meta")
    table = read_published(held.get("tokenizer") if isinstance(held, Mapping) else None)
    return {TOKENIZER: json.dumps(table.to_dict(), indent=1, sort_keys=True) + "\n"}


_STAGE = ("model_args", "config", "meta")
LAYOUTS = {
    "metavoice_first_stage": Layout(
        "metavoice",
        FIRST_STAGE_NAMES,
        first_stage_rules,
        lambda found: read_first_stage(found.checkpoint.metadata, found.checkpoint.shapes),
        documents=_tokenizer,
        entries=_STAGE,
        unread=_UNREAD,
    ),
    "metavoice_second_stage": Layout(
        "metavoice_second_stage",
        SECOND_STAGE_NAMES,
        canonical("metavoice_second_stage"),
        lambda found: read_second_stage(found.checkpoint.metadata, found.checkpoint.shapes),
        documents=_tokenizer,
        entries=_STAGE,
        unread=_UNREAD,
    ),
    "metavoice_speaker_encoder": Layout(
        "metavoice_speaker_encoder",
        SPEAKER_ENCODER_NAMES,
        canonical("metavoice_speaker_encoder", *_LOSS),
        lambda found: read_speaker_encoder(found.checkpoint.shapes),
        unread=_SPEAKER_UNREAD,
    ),
}

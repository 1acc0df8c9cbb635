"""Maps of MetaVoice's networks: the published names are canonical; torch.compile's prefix is optional."""

from __future__ import annotations

import json
from collections.abc import Mapping

from converters.maps.layouts import Found, Layout
from converters.rules.plan import Drop, Rule
from converters.rules.transforms import SAME, TIED, Transform
from tts_core.metavoice.config import (
    COMPILED_PREFIX,
    FirstStageConfig,
    SecondStageConfig,
    SpeakerEncoderConfig,
    read_first_stage,
    read_second_stage,
    read_speaker_encoder,
)
from tts_core.metavoice.spec import TOKENIZER
from tts_core.metavoice.text import read_published

_MARK = rf"({COMPILED_PREFIX.replace('.', '[.]')})?"
_SHARED = r"transformer\.(wpe|ln_f|h\.\d+\.(ln_[12]|attn|mlp\.c_proj))\.|speaker_cond_pos\.|lm_heads\."
FIRST_STAGE_NAMES = rf"{_MARK}({_SHARED}|transformer\.wtes\.0\.|transformer\.h\.\d+\.mlp\.swiglu\.)"
SECOND_STAGE_NAMES = rf"{_MARK}({_SHARED}|transformer\.wtes\.\d+\.|transformer\.h\.\d+\.mlp\.c_fc\.)"

_ATTENTION = ["attn.c_attn", "attn.c_proj"]
_TRAINING = "of its training"
_UNREAD = {
    "optimizer": f"the optimizer's state, {_TRAINING}",
    "iter_num": f"number of steps {_TRAINING}",
    "best_val_loss": f"loss {_TRAINING}",
}
_EMBEDDING, _HEAD = "transformer.wtes.0.weight", "lm_heads.0.weight"


def first_stage_rules(config: FirstStageConfig) -> list[Rule | Drop]:
    """Keep every name; the head is the token embedding and is stored once."""
    linears = [*_ATTENTION, "mlp.swiglu.w1", "mlp.swiglu.w3", "mlp.c_proj"]
    names = ["transformer.wpe.weight", "transformer.ln_f.weight", "speaker_cond_pos.weight"]
    names += [f"transformer.h.{{}}.{norm}.weight" for norm in ("ln_1", "ln_2")]
    names += _ends([f"transformer.h.{{}}.{name}" for name in linears], bias=config.bias)
    return [*_both((_EMBEDDING, _HEAD), _EMBEDDING, TIED), *_kept(names)]


def second_stage_rules(config: SecondStageConfig) -> list[Rule | Drop]:
    """Keep every name."""
    layer = ["ln_1", "ln_2", *_ATTENTION, "mlp.c_fc", "mlp.c_proj"]
    names = ["transformer.wtes.{}.weight", "transformer.wpe.weight", "speaker_cond_pos.weight"]
    names += _ends([f"transformer.h.{{}}.{name}" for name in layer], bias=config.bias)
    names += _ends(["transformer.ln_f"], bias=config.bias)
    return _kept([*names, "lm_heads.{}.weight"])


def _ends(names: list[str], *, bias: bool) -> list[str]:
    return [f"{name}.{end}" for name in names for end in ("weight", "bias")[: 1 + bias]]


def _kept(names: list[str]) -> list[Rule | Drop]:
    return [rule for name in names for rule in _both((name,), name, SAME)]


def _both(sources: tuple[str, ...], target: str, how: Transform) -> list[Rule | Drop]:
    """Build the rules with and without torch.compile's prefix."""
    marked = tuple(COMPILED_PREFIX + name for name in sources)
    return [Rule(each, target, how, optional=True) for each in (sources, marked)]


SPEAKER_ENCODER_NAMES = r"lstm\.(weight|bias)_(ih|hh)_l\d+$|linear\.(weight|bias)$|similarity_(weight|bias)$"
_SPEAKER_UNREAD = {
    "optimizer_state": "the optimizer's state, of its training",
    "step": "number of steps of its training",
}


def speaker_encoder_rules(config: SpeakerEncoderConfig) -> list[Rule | Drop]:
    """Keep every name."""
    names = [f"lstm.{kind}_{side}_l{{}}" for kind in ("weight", "bias") for side in ("ih", "hh")]
    names += ["linear.weight", "linear.bias"]
    loss = "scales the loss of its training"
    drops = [Drop(f"similarity_{kind}", loss, optional=True) for kind in ("weight", "bias")]
    return [*[Rule(name, name) for name in names], *drops]


def _read_first_stage(found: Found) -> FirstStageConfig:
    return read_first_stage(found.checkpoint.metadata, found.checkpoint.shapes)


def _read_second_stage(found: Found) -> SecondStageConfig:
    return read_second_stage(found.checkpoint.metadata, found.checkpoint.shapes)


def _read_speaker_encoder(found: Found) -> SpeakerEncoderConfig:
    return read_speaker_encoder(found.checkpoint.shapes)


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
        _read_first_stage,
        documents=_tokenizer,
        entries=_STAGE,
        unread=_UNREAD,
    ),
    "metavoice_second_stage": Layout(
        "metavoice_second_stage",
        SECOND_STAGE_NAMES,
        second_stage_rules,
        _read_second_stage,
        documents=_tokenizer,
        entries=_STAGE,
        unread=_UNREAD,
    ),
    "metavoice_speaker_encoder": Layout(
        "metavoice_speaker_encoder",
        SPEAKER_ENCODER_NAMES,
        speaker_encoder_rules,
        _read_speaker_encoder,
        unread=_SPEAKER_UNREAD,
    ),
}

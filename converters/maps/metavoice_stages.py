"""MetaVoice's two language models as published: the canonical names, perhaps behind torch.compile's mark."""

from __future__ import annotations

from converters.rules.plan import Drop, Rule
from converters.rules.transforms import SAME, TIED, Transform
from tts_core.metavoice.config import COMPILED_PREFIX, FirstStageConfig, SecondStageConfig

_MARK = rf"({COMPILED_PREFIX.replace('.', '[.]')})?"
_SHARED = r"transformer\.(wpe|ln_f|h\.\d+\.(ln_[12]|attn|mlp\.c_proj))\.|speaker_cond_pos\.|lm_heads\."
FIRST_NAMES = rf"{_MARK}({_SHARED}|transformer\.wtes\.0\.|transformer\.h\.\d+\.mlp\.swiglu\.)"
SECOND_NAMES = rf"{_MARK}({_SHARED}|transformer\.wtes\.\d+\.|transformer\.h\.\d+\.mlp\.c_fc\.)"

_ATTENTION = ["attn.c_attn", "attn.c_proj"]
_TRAINING = "of its training"
UNREAD = {
    "optimizer": f"the optimiser's state, {_TRAINING}",
    "iter_num": f"number of steps {_TRAINING}",
    "best_val_loss": f"loss {_TRAINING}",
}
_EMBEDDING, _HEAD = "transformer.wtes.0.weight", "lm_heads.0.weight"


def first_stage(config: FirstStageConfig) -> list[Rule | Drop]:
    """Every name is kept; the head is the token embedding, and stored once."""
    linears = [*_ATTENTION, "mlp.swiglu.w1", "mlp.swiglu.w3", "mlp.c_proj"]
    names = ["transformer.wpe.weight", "transformer.ln_f.weight", "speaker_cond_pos.weight"]
    names += [f"transformer.h.{{}}.{norm}.weight" for norm in ("ln_1", "ln_2")]
    names += _ends([f"transformer.h.{{}}.{name}" for name in linears], bias=config.bias)
    return [*_both((_EMBEDDING, _HEAD), _EMBEDDING, TIED), *_kept(names)]


def second_stage(config: SecondStageConfig) -> list[Rule | Drop]:
    """Every name is kept."""
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
    """With the mark and without it."""
    marked = tuple(COMPILED_PREFIX + name for name in sources)
    return [Rule(each, target, how, optional=True) for each in (sources, marked)]

"""MetaVoice's speaker encoder as published: the canonical names themselves."""

from __future__ import annotations

from converters.rules.plan import Drop, Rule
from tts_core.metavoice.config import SpeakerEncoderConfig

NAMES = r"lstm\.(weight|bias)_(ih|hh)_l\d+$|linear\.(weight|bias)$|similarity_(weight|bias)$"
UNREAD = {
    "optimizer_state": "the optimiser's state, of its training",
    "step": "number of steps of its training",
}


def rules(config: SpeakerEncoderConfig) -> list[Rule | Drop]:
    """Every name is kept."""
    names = [f"lstm.{kind}_{side}_l{{}}" for kind in ("weight", "bias") for side in ("ih", "hh")]
    names += ["linear.weight", "linear.bias"]
    loss = "scales the loss of its training"
    drops = [Drop(f"similarity_{kind}", loss, optional=True) for kind in ("weight", "bias")]
    return [*[Rule(name, name) for name in names], *drops]

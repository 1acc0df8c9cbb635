"""The map of Dia2: the published names are the canonical ones, but for gaps in the numbers of weight sets."""

from __future__ import annotations

from converters.maps.layouts import Found, Layout, config_where
from converters.rules.plan import Drop, Rule
from tts_core.codecs.mimi import NETWORK
from tts_core.dia2.config import Dia2Config, read_published
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

_LAYER = ("pre_norm", "post_norm", "mlp.wi", "mlp.wo")
_TEXT = tuple(f"text_embed.{part}.weight" for part in ("embedding", "main_proj", "second_proj"))


def rules(config: Dia2Config) -> list[Rule | Drop]:
    """Map the published names. A set of weights is numbered by its place among the ids of the schedule."""
    attention = [f"attn.{name}" for name in ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")]
    kept = [
        "transformer.audio_embeds.{}.weight",
        *(f"transformer.{name}" for name in _TEXT),
        *(f"transformer.layers.{{}}.{name}.weight" for name in (*_LAYER, *attention)),
        *(f"transformer.{name}.weight" for name in ("norm", "action_head", "cb0_head")),
        "depformer.audio_embeds.{}.weight",
        *(f"depformer.{name}" for name in _TEXT if config.depformer_has_text),
        *(f"depformer.layers.{{}}.{name}.weight" for name in _LAYER),
        *(f"depformer.layers.{{}}.self_attention.{name}_norm.weight" for name in "qk"),
        "depformer.norm.weight",
        "depformer.logits.{}.weight",
    ]
    found: list[Rule | Drop] = [Rule(name, name) for name in kept]
    for place, number in enumerate(config.weight_sets):
        found.append(
            Rule(f"depformer.depformer_in.{number}.weight", f"depformer.depformer_in.{place}.weight")
        )
        for name in ("in_proj", "out_proj"):
            at = f"depformer.layers.{{}}.self_attention.{name}"
            found.append(Rule(f"{at}.{number}.weight", f"{at}.{place}.weight"))
    return found


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

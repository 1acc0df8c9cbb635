"""EnCodec as transformers saves it: the canonical names, convolutions weight-normed or plain."""

from __future__ import annotations

from converters.maps.encodec_facebook import TRAINING
from converters.rules.plan import Drop, Rule
from converters.rules.transforms import FOLD_WEIGHT_NORM
from tts_core.codecs.encodec import EncodecConfig

NAMES = (
    r"(encoder|decoder)\.layers\.\d+\.((block\.\d+\.|shortcut\.)?conv|lstm)\."
    r"|quantizer\.layers\.\d+\.codebook\."
)


def rules(config: EncodecConfig) -> list[Rule | Drop]:
    """Every name is kept; weight norm is folded, in the names of torch before 2.0 or after."""
    found: list[Rule | Drop] = []
    for side in ("encoder", "decoder"):
        for part in ("conv", "block.1.conv", "block.3.conv", "shortcut.conv"):
            at = f"{side}.layers.{{}}.{part}"
            old = (f"{at}.weight_g", f"{at}.weight_v")
            new = tuple(f"{at}.parametrizations.weight.original{i}" for i in (0, 1))
            found += [Rule(form, f"{at}.weight", FOLD_WEIGHT_NORM, optional=True) for form in (old, new)]
            found += [Rule(f"{at}.weight", f"{at}.weight", optional=True), Rule(f"{at}.bias", f"{at}.bias")]
        for part in (f"{each}_{kind}_l{{}}" for each in ("weight", "bias") for kind in ("ih", "hh")):
            found.append(Rule(f"{side}.layers.{{}}.lstm.{part}", f"{side}.layers.{{}}.lstm.{part}"))
    books = "quantizer.layers.{}.codebook"
    found.append(Rule(f"{books}.embed", f"{books}.embed"))
    return [*found, *(Drop(f"{books}.{name}", why, optional=True) for name, why in TRAINING.items())]

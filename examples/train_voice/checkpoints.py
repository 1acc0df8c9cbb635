"""Checkpoints from an exported voice, to go on training from.

    python -m examples.train_voice.checkpoints --voice work/voice --codec work/codec.pt --dia work/dia.pt

Codebooks that have been grown (--codebooks, of stage 3 with --grow) take the place of the own, and the
language model gets a channel for each new one: it says what it said, and knows nothing of them yet.

They hold no optimizer and no time spent: the next stage begins its schedule anew, on these weights.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

from converters.published import Part, open_published
from examples.train_voice.parallel import restore, save

CHANNELS = ("model.decoder.embeddings.embed.weight", "logits_dense.weight")  # rows channel by channel


def weights(part: Part | None) -> dict[str, Tensor]:
    """All tensors of a part, float32."""
    assert part is not None, "open_published raises where it is missing"
    return {name: torch.from_numpy(part.read(name)).float() for name in part.names()}


def requantized(codec: dict[str, Tensor], quantizer: dict[str, Tensor]) -> dict[str, Tensor]:
    """A codec's weights with another quantizer, whose first codebooks are the codec's own."""
    own = {name.removeprefix("quantizer."): value for name, value in codec.items() if "quantizer." in name}
    if not all(name in quantizer and torch.equal(value, quantizer[name]) for name, value in own.items()):
        raise SystemExit("checkpoints: these codebooks are not the codec's own, grown")
    others = {name: value for name, value in codec.items() if "quantizer." not in name}
    return {**others, **{f"quantizer.{name}": value for name, value in quantizer.items()}}


def grown(dia: dict[str, Tensor], before: int, after: int) -> dict[str, Tensor]:
    """A language model with more channels: nothing is heard of a new one, and all of its codes are equal."""
    made = dict(dia)
    for name in CHANNELS:
        rows, width = dia[name].shape
        more = (after - before) * (rows // before)
        made[name] = torch.cat((dia[name], dia[name].new_zeros(more, width)))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--voice", type=Path, required=True, help="folder that export wrote")
    parser.add_argument("--codec", type=Path, help="codec checkpoint to write")
    parser.add_argument("--dia", type=Path, help="language model checkpoint to write")
    parser.add_argument("--codebooks", type=Path, help="the voice's own, grown")
    given = parser.parse_args()
    told = restore(given.codebooks, torch.device("cpu")) if given.codebooks else None
    if given.codebooks and told is None:
        raise SystemExit(f"checkpoints: there are no codebooks at {given.codebooks}")
    begun = {"step": 0, "spent": 0.0}
    if given.codec:
        codec = weights(open_published([given.voice / "codec"], parts=("dac",)).parts["dac"])
        codec = requantized(codec, told["quantizer"]) if told else codec
        save(given.codec, {"dac": codec, **begun})
    if given.dia:
        part = open_published([given.voice / "dia"], parts=("dia",)).parts["dia"]
        dia = weights(part)
        if told:
            assert part is not None, "it has been read"
            count = sum(name.endswith("codebook.weight") for name in told["quantizer"])
            dia = grown(dia, part.config.decoder_config.num_channels, count)  # pyright: ignore
        save(given.dia, {"dia": dia, "average": dia, **begun})


if __name__ == "__main__":
    main()

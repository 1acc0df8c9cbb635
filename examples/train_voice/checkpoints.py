"""Write checkpoints from an exported voice, to continue its training.

    python -m examples.train_voice.checkpoints --voice work/voice --codec work/codec.pt --dia work/dia.pt

With --codebooks, grown codebooks (stage 3 with --grow) replace the voice's own, and the language model gets a
channel for each new one. Its other channels stay unchanged; the new ones are untrained.

The checkpoints contain no optimizer state and no time spent, so the next stage starts its schedule again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

from converters.published import ModelPart, open_published
from examples.train_voice.parallel import restore, save

CHANNELS = ("model.decoder.embeddings.embed.weight", "logits_dense.weight")  # rows channel by channel


def weights(part: ModelPart | None) -> dict[str, Tensor]:
    """Read all tensors of a part as float32."""
    assert part is not None, "open_published raises if it is missing"
    return {name: torch.from_numpy(part.read(name)).float() for name in part.names()}


def requantized(codec: dict[str, Tensor], quantizer: dict[str, Tensor]) -> dict[str, Tensor]:
    """Replace a codec's quantizer with a grown one, whose first codebooks are the codec's."""
    own = {name.removeprefix("quantizer."): value for name, value in codec.items() if "quantizer." in name}
    if not all(name in quantizer and torch.equal(value, quantizer[name]) for name, value in own.items()):
        raise SystemExit(
            "checkpoints: --codebooks: these were not grown from this codec's; give those of --grow"
        )
    others = {name: value for name, value in codec.items() if "quantizer." not in name}
    return {**others, **{f"quantizer.{name}": value for name, value in quantizer.items()}}


def grown(dia: dict[str, Tensor], before: int, after: int) -> dict[str, Tensor]:
    """Add channels to a language model: their embeddings are zero, and their codes equally likely."""
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
    parser.add_argument("--voice", type=Path, required=True, help="folder written by export")
    parser.add_argument("--codec", type=Path, help="checkpoint of the codec to write")
    parser.add_argument("--dia", type=Path, help="checkpoint of the language model to write")
    parser.add_argument("--codebooks", type=Path, help="grown codebooks of the voice")
    given = parser.parse_args()
    books = restore(given.codebooks, torch.device("cpu")) if given.codebooks else None
    if given.codebooks and books is None:
        raise SystemExit(f"checkpoints: no codebooks at {given.codebooks}; run stage 3 first")
    begun = {"step": 0, "spent": 0.0}
    if given.codec:
        codec = weights(open_published([given.voice / "codec"], parts=("dac",)).parts["dac"])
        codec = requantized(codec, books["quantizer"]) if books else codec
        save(given.codec, {"dac": codec, **begun})
    if given.dia:
        part = open_published([given.voice / "dia"], parts=("dia",)).parts["dia"]
        dia = weights(part)
        if books:
            assert part is not None, "open_published raises if it is missing"
            count = sum(name.endswith("codebook.weight") for name in books["quantizer"])
            dia = grown(dia, part.config.decoder_config.num_channels, count)  # pyright: ignore
        save(given.dia, {"dia": dia, "average": dia, **begun})


if __name__ == "__main__":
    main()

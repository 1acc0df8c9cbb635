"""Checkpoints from an exported voice, to go on training from.

    python -m examples.train_voice.checkpoints --voice work/voice --codec work/codec.pt --dia work/dia.pt

They hold no optimizer and no time spent: the next stage begins its schedule anew, on these weights.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from converters.published import Part, open_published
from examples.train_voice.parallel import save


def weights(part: Part | None) -> dict[str, torch.Tensor]:
    """All tensors of a part, float32."""
    assert part is not None, "open_published raises where it is missing"
    return {name: torch.from_numpy(part.read(name)).float() for name in part.names()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--voice", type=Path, required=True, help="folder that export wrote")
    parser.add_argument("--codec", type=Path, help="codec checkpoint to write")
    parser.add_argument("--dia", type=Path, help="language model checkpoint to write")
    given = parser.parse_args()
    begun = {"step": 0, "spent": 0.0}
    if given.codec:
        codec = open_published([given.voice / "codec"], parts=("dac",)).codec
        save(given.codec, {"dac": weights(codec), **begun})
    if given.dia:
        dia = weights(open_published([given.voice / "dia"], parts=("dia",)).dia)
        save(given.dia, {"dia": dia, "average": dia, **begun})


if __name__ == "__main__":
    main()

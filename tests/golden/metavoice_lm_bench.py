"""MetaVoice's golden folder: its checkpoints on each side, and its vectors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.golden.bench import Bench, network, part_of
from tests.golden.cases import Vectors, existing
from tests.tiny.metavoice_lm import LanguageSide
from tts_core.metavoice.text import Tokenizers, read_tokenizers

SAFE = 1e-3  # README.md beside the vectors: tokens are exact where the stored margin is larger


@dataclass(frozen=True)
class Networks(LanguageSide):
    """A side with both stages."""

    first: Any
    second: Any


@dataclass(frozen=True)
class LanguageBench(Bench[Networks]):
    """Both stages, and the contents of the folder's files."""

    settings: Mapping[str, Any]  # of lm.json
    info: Mapping[str, Any]  # lm.json
    vectors: Vectors  # lm.safetensors
    tokenizers: Tokenizers


KINDS = {"first_stage": "metavoice", "second_stage": "metavoice_second_stage"}


@cache
def published_tokenizers(folder: Path) -> Tokenizers:
    """Read the tokenizers in the checkpoints."""
    parts = {kind: part_of(kind, folder / f"{stage}.pt") for stage, kind in KINDS.items()}
    return read_tokenizers({kind: part.documents for kind, part in parts.items()})


def language_bench(side: str, folder: Path, vectors: Vectors) -> LanguageBench:
    info = json.loads(existing(folder / "lm.json").read_text())

    def load(name: str) -> Networks:
        return Networks(name, *(network(name, kind, folder / f"{stage}.pt") for stage, kind in KINDS.items()))

    made = Bench.load(side, load)
    return LanguageBench(
        *(made.side, made.torch32, made.torch64),
        *(info["settings"], info, vectors, published_tokenizers(folder)),
    )


def folders(root: Path) -> list[Path]:
    """Folders with vectors of the language models: the model's own or its subfolders."""
    model = root / "metavoice"
    return [each for each in (model, *sorted(model.glob("*/"))) if (each / "lm.json").is_file()]

"""MetaVoice's golden folder: its checkpoints on each side, and its vectors."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from converters.published import open_published
from tests.golden.bench import Bench
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


class Checkpoints:
    """The published files of one folder, through the public doors, each loaded once.

    Torch reads them directly, MLX the folder that the converter writes from them.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.files = [existing(folder / f"{stage}.pt") for stage in KINDS]
        parts = open_published(self.files, parts=list(KINDS.values())).parts
        self.tokenizers = read_tokenizers({kind: parts[kind].documents for kind in KINDS.values()})
        self._networks: dict[str, Networks] = {}

    def networks(self, name: str) -> Networks:
        """name: a kind of side."""
        if name not in self._networks:
            found = self._mlx() if name == "mlx" else self._torch(name)
            self._networks[name] = Networks(name, *[found[kind] for kind in KINDS.values()])
        return self._networks[name]

    def bench(self, side: str, vectors: Vectors) -> LanguageBench:
        info = json.loads(existing(self.folder / "lm.json").read_text())
        own, torch32, torch64 = (self.networks(name) for name in (side, "torch", "float64"))
        return LanguageBench(own, torch32, torch64, info["settings"], info, vectors, self.tokenizers)

    def _torch(self, name: str) -> dict[str, Any]:
        from torch_ref.loading import open_networks

        dtype = "float64" if name == "float64" else "float32"
        return open_networks(self.files, kinds=list(KINDS.values()), device="cpu", dtype=dtype)

    def _mlx(self) -> dict[str, Any]:
        from converters.convert import convert
        from mlx_port.loading import open_networks

        found = {}
        with tempfile.TemporaryDirectory() as folder:
            for file, kind in zip(self.files, KINDS.values(), strict=True):
                made = Path(folder) / kind
                convert(open_published([file], parts=[kind]), made, dtype="float32")
                found |= open_networks(made, kinds=[kind])
        return found


checkpoints = cache(Checkpoints)


def folders(root: Path) -> list[Path]:
    """Folders with vectors of the language models: the model's own or its subfolders."""
    model = root / "metavoice"
    return [each for each in (model, *sorted(model.glob("*/"))) if (each / "lm.json").is_file()]

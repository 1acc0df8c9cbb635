"""MetaVoice's golden folder: its checkpoints on each side, and its vectors."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.cases import Vectors, existing
from tests.metavoice_sides import Side, side_of
from tests.metavoice_tiny import Weights
from tests.tolerance import assert_golden
from tts_core import metavoice
from tts_core.metavoice_text import Tokenizers, read_published

SAFE = 1e-3  # README.md beside the vectors: tokens are exact where the stored margin is larger


@dataclass(frozen=True)
class Networks:
    """Both stages on one side."""

    side: Side
    first: Any
    second: Any


@dataclass(frozen=True)
class Bench:
    """The side under test, and PyTorch in float32 and float64, which bound it."""

    own: Networks
    torch32: Networks
    torch64: Networks
    settings: Mapping[str, Any]  # of lm.json
    info: Mapping[str, Any]  # lm.json
    vectors: Vectors  # lm.safetensors
    tokenizers: Tokenizers

    def compare(self, what: str, golden: np.ndarray, compute: Callable[[Networks], np.ndarray]) -> None:
        """Require what `compute` makes of the side under test to be within the derived bound."""
        known = compute(self.torch32)
        own = known if self.own is self.torch32 else compute(self.own)
        assert_golden(own, golden, known, compute(self.torch64), what)


class Checkpoints:
    """The published files of one folder, read once."""

    def __init__(self, folder: Path):
        import torch

        self.folder = folder
        self.files = {
            stage: torch.load(existing(folder / f"{stage}.pt"), map_location="cpu", weights_only=True)
            for stage in ("first_stage", "second_stage")
        }
        self.tokenizers = Tokenizers(
            **{stage: read_published(file["meta"]["tokenizer"]) for stage, file in self.files.items()}
        )
        self._networks: dict[str, Networks] = {}

    def weights(self, stage: str) -> Weights:
        """Canonical names; the tied head is checked and left out."""
        file = self.files[stage]
        found = {metavoice.without_prefix(name): x.numpy() for name, x in file["model"].items()}
        shapes = {name: x.shape for name, x in found.items()}
        config = getattr(metavoice, f"read_{stage}")(file, shapes)
        if stage == "first_stage":
            head = found.pop("lm_heads.0.weight")
            np.testing.assert_array_equal(head, found["transformer.wtes.0.weight"], err_msg="the tied head")
        return Weights(config, found)

    def networks(self, name: str) -> Networks:
        if name not in self._networks:
            side = side_of(name)
            self._networks[name] = Networks(
                side,
                side.first_stage(self.weights("first_stage")),
                side.second_stage(self.weights("second_stage")),
            )
        return self._networks[name]

    def bench(self, side: str, vectors: Vectors) -> Bench:
        info = json.loads(existing(self.folder / "lm.json").read_text())
        own, torch32, torch64 = (self.networks(name) for name in (side, "torch", "float64"))
        return Bench(own, torch32, torch64, info["settings"], info, vectors, self.tokenizers)


def folders(root: Path) -> list[Path]:
    """Where language model vectors lie: the model's folder itself, or folders in it."""
    model = root / "metavoice"
    return [each for each in (model, *sorted(model.glob("*/"))) if (each / "lm.json").is_file()]

"""Small published models, the damage that tests do to their conversions, and the inputs of verify's runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from converters.published import Published, open_published
from tests.converters.folders import DAC, DAC_HF, DAC_PTH, V_0626, V_0626_HF, V_V01
from tests.tiny.dia2 import published_dia2
from tests.tiny.mbd import published_content, write_published
from tests.tiny.metavoice_pipeline import bands_for
from tests.tiny.networks import tiny
from tests.tiny.published_models import sources
from tests.tiny.qwen3 import write_published as write_qwen3
from tts_core import models
from tts_core.nn.probe import InputSources

# forms of Dia and their codecs
DIA: Mapping[str, tuple[Path, Path]] = {
    "v_0626": (V_0626, DAC_PTH),
    "v_v01": (V_V01, DAC),
    "v_0626_hf": (V_0626_HF, DAC_HF),
}


@dataclass(frozen=True)
class Origin:
    """Published files of a model. rows, seconds: of the inputs that are enough for it."""

    model: str
    files: tuple[Path, ...]
    rows: int
    seconds: float
    codec: Path | None = None

    @property
    def extras(self) -> tuple[str, ...]:
        return models.MODELS[self.model].extras

    def open(self) -> Published:
        return open_published(self.files, codec=self.codec, include=self.extras)

    @property
    def words(self) -> list[str]:
        """The end of a command that verifies a conversion of it."""
        codec = [] if self.codec is None else ["--codec", str(self.codec)]
        return [*codec, "--rows", str(self.rows), "--seconds", str(self.seconds)]


@cache
def write_origin(name: str, folder: Path) -> Origin:
    """name: of a model, and its form after a comma if it has several."""
    model, _, form = name.partition(", ")
    if model == "dia":
        source, codec = DIA[form]
        return Origin(model, (source,), 20, 0.1, codec)
    if model in ("dia2", "qwen3"):
        write = published_dia2 if model == "dia2" else write_qwen3
        return Origin(model, (write(folder / form, form),), 12, 0.8)
    if model == "mars5":
        return Origin(model, tuple(sources(model)), 12, 0.06)
    bands = bands_for(open_published(sources(model)).parts["encodec"].config.hidden_size)
    file = write_published(folder / "mbd_comp_8.pt", published_content(bands, tiny(bands).tensors))
    return Origin(model, (*sources(model), file), 12, 0.06)


def inputs(published: Published, *sizes: Any) -> InputSources:
    """sizes: rows, seconds and the seed."""
    configs = {kind: part.config for kind, part in published.parts.items()}
    documents = {kind: part.documents for kind, part in published.parts.items()}
    return InputSources(configs, documents, *sizes)


def edit_tensor(part: str, name: str, change: Callable[[np.ndarray], object]) -> Callable[[Path], None]:
    """Damage a tensor of a converted folder's part."""

    def damage(folder: Path) -> None:
        file = folder / part / "model.safetensors"
        tensors = {key: value.copy() for key, value in load_file(file).items()}
        change(tensors[name])
        save_file(tensors, file, {"format": "mlx"})

    return damage


def perturb(tensor: np.ndarray) -> None:
    tensor *= 1 + 1e-3 * np.random.default_rng(1).standard_normal(tensor.shape).astype(np.float32)


def swap_rows(tensor: np.ndarray) -> None:
    tensor[[1, 2]] = tensor[[2, 1]]


def poison(tensor: np.ndarray) -> None:
    tensor.flat[0] = np.nan


def failed(out: str) -> tuple[list[str], list[str], list[str]]:
    """Layers, tensors and parts that failed, of a report in JSON."""
    report = json.loads(out)
    assert not report["passed"]
    rows = [f"{row['part']} {row['layer']}" for row in report["layers"] if not row["passed"]]
    tensors = [f"{fault['part']} {fault['tensor']}" for fault in report["tensor_faults"]]
    return rows, tensors, [part["part"] for part in report["parts"] if not part["passed"]]

"""Configuration and tensors of folders that convert-weights wrote."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from tts_core import models
from tts_core.config import FORMAT_VERSION, check_quantization, without_envelope
from tts_core.errors import CheckpointError, NotFoundError, SpeechError, UsageError
from tts_core.files.header import read_header
from tts_core.files.json_object import read_json
from tts_core.files.regular import opened

Read = TypeVar("Read")
DTYPES = ("float32", "bfloat16", "float16")  # of converted networks
WEIGHTS = (".safetensors", ".pth", ".pt", ".bin", ".th")  # suffixes of published files


class Stored:
    """The files of one converted network, read lazily and again for each layer, so that no layer stays in
    memory.

    kind: of network, as in tts_core.models.  quantization: as in its config.json; None if not quantized.
    """

    def __init__(self, kind: str, files: Sequence[Path], quantization: Mapping[str, Any] | None = None):
        self.kind, self.files, self.quantization = kind, list(files), quantization
        self._file_of = {name: file for file in self.files for name in read_tensors(file)}

    def names(self) -> list[str]:
        """Names of all stored tensors, scales and biases included."""
        return list(self._file_of)

    def read(self, names: Sequence[str]) -> dict[str, mx.array]:
        """Open tensors; MLX reads their data on first use."""
        mx.clear_cache()  # memory of the previous layer
        held = {file: read_tensors(file) for file in {self._file_of[name] for name in names}}
        return {name: held[self._file_of[name]][name] for name in names}


def read_tensors(file: Path) -> dict[str, mx.array]:
    """Open the tensors of a safetensors file; MLX reads their data on first use.

    Raises CheckpointError for a file whose header is out of bounds (tts_core.files.header).
    """
    read_header(file)
    try:
        with opened(file) as handle:
            path = str(file)
            if not path.isascii() and os.fsencode(path).decode("utf-8", "replace") != path:
                path = f"/dev/fd/{handle.fileno()}"  # MLX takes UTF-8 names only
            return cast(dict[str, mx.array], mx.load(path, format="safetensors"))
    except RuntimeError as error:
        raise CheckpointError(f"model: {file} cannot be read ({error}); convert again") from None


def read_config(folder: Path, *model_types: str) -> dict[str, Any]:
    """Read the config.json of a converted folder, with its envelope; it must be of one of these types."""
    file = folder / "config.json"
    if not os.path.lexists(file):
        raise _no_config(folder, model_types)
    config = read_json(file)
    kind = str(models.kind_of(config))
    converted = config.get("weights_layout") == "mlx"
    if kind in model_types and models.network(kind).is_copied and not converted:
        return config | {"model_type": kind, "dtype": "float32"}
    is_part = converted and kind not in models.NAMES and models.is_kind(kind)
    if is_part and {*model_types} <= {*models.NAMES}:  # a whole model is expected
        title = models.network(kind).title
        raise UsageError(
            f"model: {folder} contains only {title}, a part of a converted model; "
            f"give the whole model's folder: {folder.absolute().parent}"
        )
    if not converted or kind not in model_types:
        raise CheckpointError(
            f"model: {folder} contains published weights, not converted ones; "
            f"run: convert-weights --hf-path {folder} --mlx-path NEW_FOLDER"
        )
    if config.get("dtype") not in DTYPES:
        raise CheckpointError(f"model: {file}: dtype {config.get('dtype')!r:.40} is not known; convert again")
    check_quantization(config.get("quantization"), f"model: {file}: quantization")
    if config.get("format_version") != FORMAT_VERSION:
        raise CheckpointError(
            f"model: {folder} has format {config.get('format_version')}, not {FORMAT_VERSION}; convert again"
        )
    return config | {"model_type": kind}


def _no_config(folder: Path, kinds: Sequence[str]) -> SpeechError:
    """Build the error for a folder that should contain a model, or a part of these kinds."""
    if folder.exists() and not folder.is_dir():
        return UsageError(f"model: {folder} is a file; give the folder that convert-weights wrote")
    what = "a folder without config.json" if folder.is_dir() else "no such folder"
    part = next((models.network(kind) for kind in kinds if models.network(kind).folder), None)
    if part is not None:
        return NotFoundError(f"model: {folder}: {what}; {part.title} should be in it; convert again")
    if folder.is_dir() and any(file.suffix in WEIGHTS for file in folder.iterdir()):
        return NotFoundError(
            f"model: {folder}: {what}; if these are published weights, "
            f"run: convert-weights --hf-path {folder} --mlx-path NEW_FOLDER"
        )
    return NotFoundError(f"model: {folder}: {what}; give a folder that convert-weights wrote")


def understood(read: Callable[[dict[str, Any]], Read], config: dict[str, Any], folder: Path) -> Read:
    """Apply `read` to a folder's configuration; its errors are raised again with the folder's name."""
    try:
        return read(without_envelope(config))
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        fault = str(error) if isinstance(error, SpeechError) else f"config.json: {error!r}"
        raise CheckpointError(f"model: {folder}: {fault}; convert again") from None


def quantize_linears(network: nn.Module, quantization: Mapping[str, Any], names: Collection[str]) -> None:
    """Replace the linear layers that have scales by their quantized form; an entry under a layer's path
    overrides the folder's default.

    names: of the stored tensors.
    """

    def choose(path: str, module: nn.Module) -> bool | dict[str, Any]:
        override = quantization.get(path, True)
        return isinstance(module, nn.Linear) and f"{path}.scales" in names and override

    nn.quantize(network, **_how(quantization), class_predicate=choose)


def dequantize_others(
    network: nn.Module, stored: dict[str, mx.array], quantization: Mapping[str, Any]
) -> dict[str, mx.array]:
    """Dequantize what has scales and is no linear layer: embeddings, in some folders of others.

    network: after `quantize_linears`.  stored: names → tensors; those of other layers stay as they are.
    """
    made, known = dict(stored), {name for name, _ in cast(list[Any], tree_flatten(network.parameters()))}
    for name in stored:
        layer = name.removesuffix(".scales")
        if layer != name and name not in known and f"{layer}.weight" in known:
            weight, scales = (made.pop(f"{layer}.{item}") for item in ("weight", "scales"))
            how = _how(quantization) | (quantization.get(layer) or {})
            made[f"{layer}.weight"] = mx.dequantize(weight, scales, made.pop(f"{layer}.biases", None), **how)
    return made


def _how(quantization: Mapping[str, Any]) -> dict[str, Any]:
    named = {name: quantization[name] for name in ("group_size", "bits")}
    return named | {"mode": quantization.get("mode", "affine")}


def cast_floats(name: str, value: mx.array, dtype: mx.Dtype | None, kind: str) -> mx.array:
    """Cast a stored float to `dtype` (None: its own), or to float32 where it stays so; integers stay."""
    if not mx.issubdtype(value.dtype, mx.floating):
        return value
    if models.network(kind).stays_float32(name):
        return value.astype(mx.float32)
    return value if dtype is None else value.astype(dtype)

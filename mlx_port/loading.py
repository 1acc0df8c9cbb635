"""Folders that convert-weights wrote, into MLX networks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from mlx_port.codecs.dac import Dac
from mlx_port.dia.dia import Dia
from mlx_port.dia.generate import DiaPipeline
from mlx_port.memory import backend_name, free_bytes
from tts_core import dac, dia
from tts_core.converted import FORMAT_VERSION, without_envelope
from tts_core.dia_shapes import is_norm
from tts_core.errors import CheckpointError, NotFoundError, SpeechError, UsageError
from tts_core.room import check_loading

Read = TypeVar("Read")
DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}


def load(path: str | Path, *, dtype: str | None = None) -> DiaPipeline:
    """A Dia with its codec, from a folder that convert-weights wrote.

    dtype: float32, bfloat16 or float16 for the network; None takes the folder's own. Norms and the codec stay
    float32.
    Raises NotFoundError, CheckpointError (for published files: it says how to convert them), UsageError, and
    ResourceError where memory would not hold it.
    """
    if dtype is not None and dtype not in DTYPES:
        raise UsageError(f"dtype: {dtype!r} is not one of {', '.join(DTYPES)}")
    folder = Path(path)
    config = read_config(folder, "dia")
    network = Dia(understood(dia.read_converted, config, folder))
    if config.get("quantization"):
        understood(lambda _: quantize_linears(network, config["quantization"]), config, folder)
    place = folder / "codec"
    codec = Dac(understood(dac.read_converted, read_config(place, "dac"), place))
    understood(lambda _: _check_room(network, codec, config, dtype), config, folder)
    _fill(network, folder, None if dtype is None else DTYPES[dtype])
    _fill(codec, place, None)
    return DiaPipeline(network, codec)


def read_config(folder: Path, model_type: str) -> dict[str, Any]:
    """The config.json of a converted folder, its envelope included; errors as of `load`."""
    file = folder / "config.json"
    if not file.is_file():
        what = "a folder without config.json" if folder.is_dir() else "no such folder"
        raise NotFoundError(f"model: {folder}: {what}; give a folder that convert-weights wrote")
    try:
        config = json.loads(file.read_text())
    except ValueError as error:
        raise CheckpointError(f"model: {file} is not JSON ({error}); convert again") from None
    if not isinstance(config, dict):
        raise CheckpointError(f"model: {file} holds no JSON object; convert again")
    if config.get("weights_layout") != "mlx" or config.get("model_type") != model_type:
        raise CheckpointError(
            f"model: {folder} holds published weights, not converted ones; "
            f"run: convert-weights --hf-path {folder} --mlx-path NEW_FOLDER"
        )
    if config.get("format_version") != FORMAT_VERSION:
        raise CheckpointError(
            f"model: {folder} has format {config.get('format_version')}, not {FORMAT_VERSION}; convert again"
        )
    return config


def understood(read: Callable[[dict[str, Any]], Read], config: dict[str, Any], folder: Path) -> Read:
    """What `read` makes of a folder's configuration; whatever it finds wrong is told with the folder."""
    try:
        return read(without_envelope(config))
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        fault = str(error) if isinstance(error, SpeechError) else f"config.json: {error!r}"
        raise CheckpointError(f"model: {folder}: {fault}; convert again") from None


def _check_room(network: Dia, codec: Dac, config: dict[str, Any], dtype: str | None) -> None:
    check_loading(
        network.config,
        codec.config,
        dtype=dtype or config["dtype"],
        quantization=config.get("quantization"),
        backend=backend_name(),
        free=free_bytes(),
    )


def quantize_linears(network: nn.Module, quantization: dict[str, Any]) -> None:
    """Give every listed linear layer its quantised form; an entry under a layer's path overrides the
    folder's default.
    """
    default = {name: quantization[name] for name in ("group_size", "bits", "mode")}

    def choose(path: str, module: nn.Module) -> bool | dict[str, Any]:
        override = quantization.get(path, True)
        return isinstance(module, nn.Linear) and override

    nn.quantize(network, **default, class_predicate=choose)


def _fill(network: nn.Module, folder: Path, dtype: mx.Dtype | None) -> None:
    """Load all tensors, strictly: the names, and every shape, are those of the network."""
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise NotFoundError(f"model: {folder} has no model*.safetensors; convert again")
    weights: dict[str, mx.array] = {}
    for file in files:
        try:
            weights |= cast(dict[str, mx.array], mx.load(str(file)))
        except RuntimeError as error:
            raise CheckpointError(f"model: {file} cannot be read ({error}); convert again") from None
    parameters = cast(list[tuple[str, mx.array]], tree_flatten(network.parameters()))
    wanted = {name: _kind(value) for name, value in parameters}
    faults = [f"{name} missing" for name in wanted.keys() - weights.keys()]
    faults += [f"{name} unknown" for name in weights.keys() - wanted.keys()]
    faults += [
        f"{name} is {_kind(weights[name])}, expected {wanted[name]}"
        for name in wanted.keys() & weights.keys()
        if _kind(weights[name]) != wanted[name]
    ]
    if faults:
        raise CheckpointError(f"model: {folder}: {'; '.join(sorted(faults)[:20])}; convert again")
    # taken out one by one, so that no array lives beside its cast
    ready = {name: cast_floats(name, weights.pop(name), dtype) for name in wanted}
    network.load_weights(list(ready.items()), strict=True)
    network.eval()
    mx.eval(network.parameters())  # read the files now, not within the first generation


def _kind(value: mx.array) -> str:
    """Shape and sort of numbers: any floating type may stand in a checkpoint, others must be as expected."""
    return f"{'float' if mx.issubdtype(value.dtype, mx.floating) else value.dtype} {value.shape}"


def cast_floats(name: str, value: mx.array, dtype: mx.Dtype | None) -> mx.array:
    """A stored tensor in `dtype`; norms, whole numbers and, for None, everything stay as they are."""
    floating = mx.issubdtype(value.dtype, mx.floating)
    return value if dtype is None or is_norm(name) or not floating else value.astype(dtype)

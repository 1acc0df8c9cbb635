"""EnCodec and Vocos on both sides, NumPy in and out: published files through our maps, planned strictly."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from converters.files.readers import PICKLES, SafetensorsCheckpoint, TorchCheckpoint
from converters.maps.layouts import layouts
from converters.rules.plan import Drop, Rule, plan
from tests.golden.bench import Bench, Side
from tests.golden.cases import existing
from tts_core.audio.mel import inverse_basis, periodic_hann
from tts_core.codecs import encodec, vocos
from tts_core.files.json_object import read_json

Weights = tuple[Any, dict[str, np.ndarray]]  # a configuration, and tensors by canonical name


def encodec_bench(side: str, file: Path, config: Path | None) -> Bench:
    """config: of the transformers layout; None takes the sizes from the tensors of a .th file."""
    file, config = existing(file).resolve(), config and existing(config).resolve()
    return Bench(*(_side(kind, "encodec", file, config) for kind in (side, "torch", "float64")))


def vocos_bench(side: str, folder: Path) -> Bench:
    """From a folder with config.yaml and pytorch_model.bin."""
    file, config = (existing(folder / name).resolve() for name in ("pytorch_model.bin", "config.yaml"))
    return Bench(*(_side(kind, "vocos", file, config) for kind in (side, "torch", "float64")))


def bench_of(side: str, model: str, weights: Weights) -> Bench:
    """The same for weights at hand."""
    kinds = (side, "torch", "float64")
    return Bench(*((_mlx if kind == "mlx" else _torch)(model, weights, kind) for kind in kinds))


@cache
def _side(kind: str, model: str, file: Path, config: Path | None) -> Side:
    """kind: "mlx", or "torch" in float32, or "float64"."""
    weights = _encodec(file, config) if model == "encodec" else _vocos(file, config or file)
    return (_mlx if kind == "mlx" else _torch)(model, weights, kind)


def _encodec(file: Path, config: Path | None) -> Weights:
    checkpoint = _open(file)
    told = encodec.read_transformers(read_json(config)) if config else None
    rate = told.sample_rate if told else encodec.SAMPLE_RATE
    sizes = encodec.from_shapes(checkpoint.shapes, sample_rate=rate)
    assert told in (None, sizes), f"{config}: not of {file}"
    layout = layouts()["encodec_transformers" if config else "encodec_facebook"]
    return _planned(checkpoint, layout.rules(sizes), sizes, encodec.parameter_shapes(sizes))


def _vocos(file: Path, config: Path) -> Weights:
    checkpoint = _open(file)
    sizes = vocos.read_published(vocos.read_yaml(config.read_text()), checkpoint.shapes)
    return _planned(
        checkpoint, layouts()["vocos_charactr"].rules(sizes), sizes, vocos.parameter_shapes(sizes)
    )


def _open(file: Path) -> Any:
    pickled = file.suffix in (*PICKLES, ".th")
    return TorchCheckpoint(file) if pickled else SafetensorsCheckpoint([file])


def _planned(checkpoint: Any, rules: Sequence[Rule | Drop], config: Any, shapes: dict[str, Any]) -> Weights:
    """Every tensor of the file claimed, every one of the network made."""
    moves = plan(rules, checkpoint.shapes, shapes)
    made = {move.target: move.how.apply(*map(checkpoint.read, move.sources)) for move in moves}
    return config, {name: np.ascontiguousarray(tensor) for name, tensor in made.items()}


def _torch(model: str, weights: Weights, kind: str) -> Side:
    import torch

    from torch_ref.codecs.encodec import Encodec
    from torch_ref.codecs.vocos import Vocos

    dtype = torch.float64 if kind == "float64" else torch.float32

    def to_device(array: np.ndarray) -> torch.Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    config, tensors = weights
    with torch.device("meta"):
        network: Any = Encodec(config) if model == "encodec" else Vocos(config)
    network.load_state_dict({name: to_device(tensor) for name, tensor in tensors.items()}, assign=True)
    if kind == "float64" and model == "vocos":
        exact_transform(network.head.istft)
    pipeline = SimpleNamespace(engine=SimpleNamespace(codec=network.to("cpu").eval()))
    return Side(pipeline, to_device, lambda tensor: tensor.detach().numpy(), channels_last=False)


def exact_transform(istft: Any, window: np.ndarray | None = None) -> None:
    """The oracle's own tables, in float64 to the end."""
    import torch

    window = periodic_hann(istft.n_fft) if window is None else window
    istft._basis, istft._weight = map(torch.from_numpy, inverse_basis(window, istft.hop_length))


def _mlx(model: str, weights: Weights, kind: str) -> Side:
    import mlx.core as mx

    from mlx_port.codecs.encodec import Encodec
    from mlx_port.codecs.vocos import Vocos

    config, tensors = weights
    network: Any = Encodec(config) if model == "encodec" else Vocos(config)
    axes = partial(encodec.mlx_axes, config) if model == "encodec" else vocos.mlx_axes
    loaded = []
    for name, tensor in tensors.items():
        order = axes(name, tensor.ndim)
        loaded.append((name, mx.array(tensor if order is None else tensor.transpose(order))))
    network.load_weights(loaded, strict=True)
    return Side(
        SimpleNamespace(engine=SimpleNamespace(codec=network)), mx.array, np.array, channels_last=True
    )

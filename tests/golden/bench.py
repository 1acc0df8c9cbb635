"""Both sides behind one face, NumPy in and out, so that a check is written once.

All is loaded through the public doors: torch reads published files, MLX what the converter made of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from safetensors.numpy import save_file

from tests.tolerance import assert_golden, assert_within
from tts_core.codecs import dac
from tts_core.dia import config as dia
from tts_core.dia import shapes as dia_shapes

SIDES = ("torch", "mlx")


@dataclass(frozen=True)
class Side:
    """A pipeline, and how its arrays come and go."""

    pipeline: Any
    to_device: Callable[[np.ndarray], Any]
    to_host: Callable[[Any], np.ndarray]
    channels_last: bool

    @property
    def config(self) -> dia.DiaConfig:
        return self.pipeline.config

    @property
    def codec(self) -> Any:
        return self.pipeline.engine.codec

    def encode_text(self, ids: np.ndarray) -> np.ndarray:
        """(S,) → (S, D)."""
        return self.to_host(self.pipeline.engine.network.model.encoder(self.to_device(ids[None])))[0]

    def cross(self, ids: np.ndarray, layer: int) -> tuple[np.ndarray, np.ndarray]:
        """A layer's cross-attention keys and values of a text. (S,) → (K, S, E) each."""
        model = self.pipeline.engine.network.model
        source = model.decoder.source(model.encoder(self.to_device(ids[None])), None)
        return self.to_host(source.keys[layer])[0], self.to_host(source.values[layer])[0]

    def teacher_forced(
        self, ids: np.ndarray, tokens: np.ndarray, prefill: int
    ) -> tuple[np.ndarray, list[tuple[np.ndarray, ...]]]:
        """Logits of given rows, the first `prefill` at once, the others one by one; and every layer's cache.

        ids: (S,), tokens: (T, C) → (2, T, C, V), and keys and values, (2, K, T, E); unconditional row first.
        """
        network = self.pipeline.engine.network
        source = network.read([self.to_device(ids)], network.encode_nothing())
        cache = network.new_cache()
        rows = np.stack([tokens, tokens])
        cuts = [(0, prefill), *((t, t + 1) for t in range(prefill, len(tokens)))]
        logits = [self.to_host(network(self.to_device(rows[:, a:b]), cache, source)) for a, b in cuts]
        held = [tuple(self.to_host(x[:, :, : layer.length])[::-1] for x in layer.buffers) for layer in cache]
        return np.concatenate(logits, axis=1)[::-1], held

    def conv(self, module: Callable[[Any], Any], x: np.ndarray) -> np.ndarray:
        """A part of the codec that takes and gives (B, C, T), whatever the framework's layout."""
        return self._from_channels(module(self._to_channels(x)))

    def latents(self, codes: np.ndarray) -> np.ndarray:
        """(B, q, T) → (B, C, T)."""
        return self._from_channels(self.codec.quantizer.decode(self.to_device(codes)))

    def encode(self, samples: np.ndarray) -> np.ndarray:
        """(B, L) → (B, Q, T)."""
        return self.to_host(self.codec.encode(samples))

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """(B, q, T) → (B, L)."""
        return self.to_host(self.codec.decode(codes))

    def _to_channels(self, x: np.ndarray) -> Any:
        return self.to_device(np.ascontiguousarray(x.swapaxes(1, 2)) if self.channels_last else x)

    def _from_channels(self, x: Any) -> np.ndarray:
        value = self.to_host(x)
        return value.swapaxes(1, 2) if self.channels_last else value


@dataclass(frozen=True)
class Bench:
    """The side under test, and the torch network in float32 and float64 that bounds it."""

    side: Side
    torch32: Side
    torch64: Side

    def compare(self, what: str, golden: np.ndarray, compute: Callable[[Side], np.ndarray]) -> None:
        """Require what `compute` makes of the side under test to be within the derived bound."""
        known = compute(self.torch32)
        own = known if self.side is self.torch32 else compute(self.side)
        assert_golden(own, golden, known, compute(self.torch64), what)

    def within(self, what: str, own: np.ndarray, torch32: np.ndarray, torch64: np.ndarray) -> None:
        """The same where no golden vector exists."""
        assert_within(own, torch32, torch64, what)


class Loader:
    """Loads a checkpoint once for all cases that share it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._loaded: dict[tuple, Side] = {}
        self._beside: dict[Path, Path] = {}  # a codec → its random Dia

    def bench(self, side: str, weights: Path, config: Path | None, codec: Path | None) -> Bench:
        """weights, config: of Dia; codec: of the DAC, None where a random one will do."""
        return Bench(*(self._load(kind, weights, config, codec) for kind in (side, "torch", "float64")))

    def codec_bench(self, side: str, codec: Path) -> Bench:
        """For a DAC alone: a random Dia stands beside it."""
        return self.bench(side, self._random_dia(codec) / "model.safetensors", None, codec)

    def _load(self, kind: str, weights: Path, config: Path | None, codec: Path | None) -> Side:
        key = (kind, weights.resolve(), config and config.resolve(), codec and codec.resolve())
        if key not in self._loaded:
            staged = self._stage(weights, config or weights.parent / "config.json")
            codec = codec or self._random_dac(staged)
            self._loaded[key] = (
                _mlx(staged, codec, self._new()) if kind == "mlx" else _torch(staged, codec, kind)
            )
        return self._loaded[key]

    def _new(self) -> Path:
        return self.folder / f"{len(list(self.folder.iterdir()))}"

    def _stage(self, weights: Path, config: Path) -> Path:
        """A folder with these weights and this configuration, wherever they lie."""
        staged = self._new()
        staged.mkdir()
        files = {weights.name: weights, "config.json": config}
        if weights.suffix == ".json":  # the index of a sharded checkpoint
            shards = set(json.loads(weights.read_text())["weight_map"].values())
            files |= {name: weights.parent / name for name in shards}
        for name, file in files.items():
            (staged / name).symlink_to(file.resolve())
        return staged

    def _random_dac(self, staged: Path) -> Path:
        config = dia.read_published(json.loads((staged / "config.json").read_text()))
        channels = config.decoder_config.num_channels
        return self._write(
            "dac",
            {
                "encoder_hidden_size": 2,
                "downsampling_ratios": [2],
                "decoder_hidden_size": 2,
                "n_codebooks": channels,
                "codebook_size": config.eos_token_id,
                "codebook_dim": 2,
                "sampling_rate": 8000,
            },
            lambda written: dac.parameter_shapes(dac.read_transformers(written)),
        )

    def _random_dia(self, codec: Path) -> Path:
        key = codec.resolve()
        if key not in self._beside:
            self._beside[key] = self._write_dia(*_codebooks(codec))
        return self._beside[key]

    def _write_dia(self, books: int, size: int) -> Path:
        shared = {
            "hidden_size": 4,
            "intermediate_size": 4,
            "num_hidden_layers": 1,
            "head_dim": 2,
            "norm_eps": 1e-5,
        }
        shared |= {
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "max_position_embeddings": 64,
            "rope_theta": 1e4,
        }
        cross = {"hidden_size": 4, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 2}
        decoder = shared | {f"cross_{name}": value for name, value in cross.items()}
        return self._write(
            "dia",
            {
                "encoder_config": shared | {"vocab_size": 256},
                "decoder_config": decoder | {"vocab_size": size + 4, "num_channels": books},
                "delay_pattern": list(range(books)),
                "eos_token_id": size,
                "pad_token_id": size + 1,
                "bos_token_id": size + 2,
            },
            lambda written: dia_shapes.parameter_shapes(dia.read_published(written)),
        )

    def _write(
        self, model_type: str, config: dict[str, Any], shapes: Callable[[dict[str, Any]], dict]
    ) -> Path:
        """A random checkpoint in transformers' layout."""
        folder, rng = self._new(), np.random.default_rng(0)
        folder.mkdir()
        tensors = {
            name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes(config).items()
        }
        save_file(tensors, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(config | {"model_type": model_type}))
        return folder


def _codebooks(codec: Path) -> tuple[int, int]:
    """How many codebooks, of how many entries."""
    from converters.published import open_published

    part = open_published([codec], parts=("dac",)).parts["dac"]
    assert part is not None, f"{codec}: no DAC in it"
    assert isinstance(part.config, dac.DacConfig)
    return part.config.n_codebooks, part.config.codebook_size


def _torch(staged: Path, codec: Path, kind: str) -> Side:
    import torch

    import torch_ref

    wide = kind == "float64"
    dtype = torch.float64 if wide else torch.float32

    def to_device(array: np.ndarray) -> torch.Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    exact = mock.patch("torch_ref.layers.rope.rope_table", _exact_rope_table)
    with exact if wide else nullcontext():
        pipeline = torch_ref.load(staged, codec=codec, device="cpu", dtype="float64" if wide else "float32")
    return Side(pipeline, to_device, lambda tensor: tensor.detach().numpy(), channels_last=False)


def _mlx(staged: Path, codec: Path, destination: Path) -> Side:
    import mlx.core as mx

    import mlx_port
    from converters.convert import convert
    from converters.published import open_published

    convert(open_published([staged], codec=codec), destination, dtype="float32")
    return Side(mlx_port.load(destination), mx.array, np.array, channels_last=True)


def _exact_rope_table(length: int, head_dim: int, theta: float) -> tuple[np.ndarray, np.ndarray]:
    """The oracle's own: the angle of position t and pair i is t / theta^(2i / E), in float64 to the end."""
    pair = np.arange(head_dim // 2)
    angles = np.arange(length)[:, None] / theta ** (2.0 * pair / head_dim)
    return np.cos(angles), np.sin(angles)

"""Dia and its codec on both sides, NumPy in and out, through the public doors.

Torch reads published files, MLX the folder that the converter writes from them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tests.golden.bench import Bench
from tests.golden.codec_bench import CodecSide
from tests.golden.exact import exact_rotary
from tts_core.codecs import dac
from tts_core.dia import config as dia
from tts_core.dia import shapes as dia_shapes


@dataclass(frozen=True)
class DiaSide(CodecSide):
    """A side with a pipeline of Dia."""

    pipeline: Any

    @property
    def config(self) -> dia.DiaConfig:
        return self.pipeline.config

    def encode_text(self, ids: np.ndarray) -> np.ndarray:
        """(S,) → (S, D)."""
        return self.numpy(self.pipeline.engine.network.model.encoder(self.array(ids[None])))[0]

    def cross(self, ids: np.ndarray, layer: int) -> tuple[np.ndarray, np.ndarray]:
        """A layer's cross-attention keys and values of a text. (S,) → (K, S, E) each."""
        model = self.pipeline.engine.network.model
        source = model.decoder.source(model.encoder(self.array(ids[None])), None)
        return self.numpy(source.keys[layer])[0], self.numpy(source.values[layer])[0]

    def teacher_forced(
        self, ids: np.ndarray, tokens: np.ndarray, prefill: int
    ) -> tuple[np.ndarray, list[tuple[np.ndarray, ...]]]:
        """Logits of given rows, the first `prefill` at once, the others one by one; and every layer's cache.

        ids: (S,), tokens: (T, C) → (2, T, C, V), and keys and values, (2, K, T, E); unconditional row first.
        """
        network = self.pipeline.engine.network
        source = network.read([self.array(ids)], network.encode_nothing())
        cache = network.new_cache()
        rows = np.stack([tokens, tokens])
        cuts = [(0, prefill), *((t, t + 1) for t in range(prefill, len(tokens)))]
        logits = [self.numpy(network(self.array(rows[:, a:b]), cache, source)) for a, b in cuts]
        held = [tuple(self.numpy(x[:, :, : layer.length])[::-1] for x in layer.buffers) for layer in cache]
        return np.concatenate(logits, axis=1)[::-1], held


class Loader:
    """Load a checkpoint once for all cases that share it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._loaded: dict[tuple, DiaSide] = {}
        self._beside: dict[Path, Path] = {}  # a codec → its random Dia

    def bench(self, side: str, weights: Path, config: Path | None, codec: Path | None) -> Bench[DiaSide]:
        """weights, config: of Dia; codec: of the DAC, None where a random one will do."""
        return Bench.load(side, lambda kind: self._load(kind, weights, config, codec))

    def codec_bench(self, side: str, codec: Path) -> Bench[DiaSide]:
        """For a DAC, with a random Dia to complete the pipeline."""
        return self.bench(side, self._random_dia(codec) / "model.safetensors", None, codec)

    def _load(self, kind: str, weights: Path, config: Path | None, codec: Path | None) -> DiaSide:
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
        """Link these weights and this configuration into one folder."""
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
            **dict.fromkeys(("hidden_size", "intermediate_size"), 4),
            **{"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 2},
            **{"norm_eps": 1e-5, "max_position_embeddings": 64, "rope_theta": 1e4},
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
    """Number of codebooks and of entries per codebook."""
    from converters.published import open_published

    part = open_published([codec], parts=("dac",)).parts["dac"]
    assert part is not None, f"{codec}: no DAC in it"
    assert isinstance(part.config, dac.DacConfig)
    return part.config.n_codebooks, part.config.codebook_size


def _torch(staged: Path, codec: Path, kind: str) -> DiaSide:
    import torch_ref

    with exact_rotary(kind):
        pipeline = torch_ref.DiaPipeline.load(
            staged, codec=codec, device="cpu", dtype="float64" if kind == "float64" else "float32"
        )
    return DiaSide(kind, pipeline.engine.codec, pipeline)


def _mlx(staged: Path, codec: Path, destination: Path) -> DiaSide:
    import mlx_port
    from converters.convert import convert
    from converters.published import open_published

    convert(open_published([staged], codec=codec), destination, dtype="float32")
    pipeline = mlx_port.DiaPipeline.load(destination)
    return DiaSide("mlx", pipeline.engine.codec, pipeline)

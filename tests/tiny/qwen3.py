"""Folders of a small Qwen3-TTS as they are published."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from benchmarks.lib.checkpoints import write_qwen3_texts
from tests.tiny.networks import Weights, codec_config, qwen3_config, tiny
from tts_core.codecs.qwen3_codec import Qwen3CodecConfig

HALVES = {"semantic": "first", "acoustic": "rest"}


def write_published(
    folder: Path,
    mode: str = "custom_voice",
    seed: int = 0,
    *,
    eos: float = 1.0,
    size: str | None = None,
) -> Path:
    """Write a folder as it is published, all tensors in float32. eos: size of the logit that ends speech."""
    config, codec = qwen3_config(mode, size), codec_config()
    weights = tiny(config, seed)
    weights.tensors["talker.codec_head.weight"][config.codec_eos_id] *= eos
    write_qwen3_texts(folder, config, codec)
    save_file(weights.tensors, folder / "model.safetensors")
    save_file(published_codec(tiny(codec, seed)), folder / "speech_tokenizer/model.safetensors")
    return folder


def published_codec(weights: Weights[Qwen3CodecConfig]) -> dict[str, np.ndarray]:
    """Rename the codec's tensors; entries of a codebook are sums, and how many they are of."""
    random, config, made = np.random.default_rng(9), weights.config, dict[str, np.ndarray]()
    books = list[str]()
    for name, tensor in weights.tensors.items():
        if name.startswith("decoder.quantizer."):
            for half, theirs in HALVES.items():
                name = name.replace(f"{half}_residual_vector_quantizer", f"rvq_{theirs}")
            name = name.replace(".layers.", ".vq.layers.").replace(".codebook.", "._codebook.")
        if not name.endswith(".embed"):
            made[name] = tensor
            continue
        uses = random.integers(1, 9, len(tensor)).astype(np.float32)
        total = "embedding_sum" if "_codebook" in name else "embed_sum"
        at = name.removesuffix(".embed")
        made[f"{at}.{total}"], made[f"{at}.cluster_usage"] = tensor * uses[:, None], uses
        if total == "embed_sum":
            made[f"{at}.initialized"] = np.ones(1, np.float32)
            books.append(at)
    last, _, count = books[-1].removesuffix(".codebook").rpartition(".")
    for unread in range(config.n_unread):
        for part in ("embed_sum", "cluster_usage", "initialized"):
            made[f"{last}.{int(count) + 1 + unread}.codebook.{part}"] = made[f"{books[-1]}.{part}"]
    return made

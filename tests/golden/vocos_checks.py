"""Checks of Vocos's golden files: codes to audio, the values in between, and both inverse transforms."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.bench import Bench
from tests.golden.cases import Vectors
from tests.golden.codec_bench import CodecSide, codec_bench
from tests.golden.exact import exact_transform
from tests.tolerance import assert_golden
from tts_core.codecs.vocos import LARGEST_MAGNITUDE
from tts_core.files.json_object import read_json
from tts_core.metavoice.decoding import VocosDecoder

SIX_KBPS = 2  # of 1.5, 3, 6 and 12: MetaVoice's, 8 codebooks of 10 bits, 75 times a second
BETWEEN = ("features", "backbone", "head_linear")


def discover_vocos(root: Path) -> list[Path]:
    """Every .json of Vocos's vectors in a model's folder."""
    return sorted(root.glob("vocos*_io.json"))


def check_vocos(file: Path, side: str) -> None:
    """Check everything in a file of vectors on one side."""
    info, vectors = read_json(file), Vectors(file.with_suffix(".safetensors"))
    bench = codec_bench(side, "vocos", file.parent / info["checkpoint"])
    assert info["magnitude_clip"] == LARGEST_MAGNITUDE, f"{file}: magnitude_clip"
    assert info["cases"], f"{file}: no cases"
    for name, about in info["cases"].items():
        _check_case(f"{file.stem}: {name}", name, about, vectors, bench)
    if "istft" in info:
        _check_transforms(file.stem, info["istft"], vectors, side)
    vectors.assert_all_read()


def _check_case(at: str, name: str, about: dict[str, Any], vectors: Vectors, bench: Bench[CodecSide]) -> None:
    codes, bandwidth = vectors[f"{name}.codes"][None].astype(np.int32), int(vectors[f"{name}.bandwidth_id"])
    assert codes.shape[1:] == (about["n_codebooks"], about["n_frames"])
    assert (bandwidth, about["n_samples"]) == (about["bandwidth_id"], vectors[f"{name}.audio"].shape[1])
    if about["intermediates"]:
        # upstream's features are (B, C, T), its other values (B, T, D), as all of ours
        golden = {part: vectors[f"{name}.{part}"] for part in BETWEEN}
        golden["features"] = golden["features"].swapaxes(1, 2)
        for part in BETWEEN:
            bench.compare(
                f"{at}.{part}", golden[part], lambda s, part=part: between(s, codes, bandwidth)[part]
            )
        clipped = (
            np.exp(golden["head_linear"][..., : golden["head_linear"].shape[-1] // 2]) > LARGEST_MAGNITUDE
        )
        assert clipped.sum() == about["n_clipped_bins"], f"{at}: clipped bins"
    audio = vectors[f"{name}.audio"]
    bench.compare(f"{at}.audio", audio, lambda s: s.numpy(s.codec.decode(codes, bandwidth)))


def between(side: CodecSide, codes: np.ndarray, bandwidth: int) -> dict[str, np.ndarray]:
    """Outputs of the network's parts before the transform."""
    codec = side.codec
    features = codec.feature_extractor(side.array(codes))
    backbone = codec.backbone(features, bandwidth)
    made = zip(BETWEEN, (features, backbone, codec.head.out(backbone)), strict=True)
    return {part: side.numpy(value) for part, value in made}


def check_default_decoder(file: Path, side: str) -> None:
    """MetaVoice's decoder on the cases of its bandwidth: the same audio, through its own door."""
    info, vectors = read_json(file), Vectors(file.with_suffix(".safetensors"))
    bench = codec_bench(side, "vocos", file.parent / info["checkpoint"])
    package, codec = "mlx_port" if side == "mlx" else "torch_ref", bench.side.codec
    decoder = VocosDecoder(codec, import_module(f"{package}.host").Host(codec.head.out))
    for name in default_cases(file):
        codes = vectors[f"{name}.codes"].astype(np.int32)
        [own] = decoder.decode([codes], [])
        known, truth = (
            s.numpy(s.codec.decode(codes[None], info["cases"][name]["bandwidth_id"]))
            for s in (bench.torch32, bench.torch64)
        )
        assert_golden(own[None], vectors[f"{name}.audio"], known, truth, f"{file.stem}: {name}")


def default_cases(file: Path) -> list[str]:
    """Cases that MetaVoice's default decoder can make: of its bandwidth, by all of its codebooks."""
    cases = read_json(file)["cases"]
    return [name for name, about in cases.items() if about["bandwidth_id"] == SIX_KBPS]


def _check_transforms(at: str, about: dict[str, Any], vectors: Vectors, side: str) -> None:
    real, imag = vectors["istft.re"], vectors["istft.im"]
    assert about["win_length"] == about["n_fft"], f"{at}: windows shorter than the transform"
    for padding in about["paddings"]:
        own, known, truth = (
            _transform(kind, about, padding, real, imag) for kind in (side, "torch", "float64")
        )
        assert_golden(own, vectors[f"istft.{padding}"], known, truth, f"{at}: istft.{padding}")


def _transform(
    kind: str, about: dict[str, Any], padding: Any, real: np.ndarray, imag: np.ndarray
) -> np.ndarray:
    sizes = about["n_fft"], about["hop_length"]
    if kind == "mlx":
        import mlx.core as mx

        from mlx_port.layers.istft import InverseSTFT

        parts = [mx.array(part.swapaxes(1, 2)) for part in (real, imag)]
        return np.array(InverseSTFT(*sizes, padding=padding)(*parts))
    import torch

    from torch_ref.layers import istft

    layer = istft.InverseSTFT(*sizes, padding=padding)
    parts = [torch.from_numpy(part) for part in (real, imag)]
    if kind == "float64":
        exact_transform(layer)
        parts = [part.double() for part in parts]
    return layer(*parts).numpy()

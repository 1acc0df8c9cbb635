"""Checks of EnCodec's golden files: clips both ways, single modules, and MetaVoice's codec waveform."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.golden.bench import Bench
from tests.golden.cases import Vectors, existing
from tests.golden.codec_bench import CodecSide, codec_bench
from tests.tiny.every_codec import codebooks_at
from tests.tolerance import EPS, FACTOR, FLOOR
from tts_core.codecs.encodec import read_transformers
from tts_core.files.json_object import read_json

CLIP = ("audio", "emb", "codes", "min_margin", "quantized", "decoded")


@dataclass(frozen=True)
class EncodecCase:
    """A file of vectors, named by its .json. root: the model's folder."""

    root: Path
    name: str

    def __str__(self) -> str:
        return f"{self.root.name}/{self.name}"


def discover_encodec(root: Path) -> list[EncodecCase]:
    """Every file of EnCodec's vectors in a model's folder."""
    return [EncodecCase(root, file.stem) for file in sorted(root.glob("encodec*_io.json"))]


def check_encodec(case: EncodecCase, side: str) -> None:
    """Check everything in a file of vectors on one side."""
    info, vectors = (
        read_json(case.root / f"{case.name}.json"),
        Vectors(case.root / f"{case.name}.safetensors"),
    )
    bench = codec_bench(side, "encodec", case.root / info["checkpoint"])
    sizes = bench.side.codec.config
    if "config" in info:
        assert read_transformers(read_json(case.root / info["config"])) == sizes
    assert (info["sample_rate"], info["hop"]) == (bench.side.codec.sample_rate, bench.side.codec.hop_length)
    stated = case.root / f"{Path(info['checkpoint']).stem}.json"
    if stated.exists():
        _check_sizes(read_json(stated), sizes)
    assert info["cases"], f"{case}: no clips"
    for name, about in info["cases"].items():
        vectors.require(f"{name}.{part}" for part in CLIP)
        assert about["n_q"] == codebooks_at(sizes, about["bandwidth"]), f"{case}: {name}"
        _check_clip(f"{case}: {name}", {part: vectors[f"{name}.{part}"] for part in CLIP}, about, bench)
    if "layers" in info:
        _check_layers(str(case), info["layers"], vectors, bench)
    vectors.assert_all_read()


def _check_sizes(stated: dict[str, Any], sizes: Any) -> None:
    """Compare the original's configuration with the one read from the tensors' shapes."""
    names = {
        "sample_rate": "sample_rate",
        "ratios": "upsampling_ratios",
        "n_q": "n_codebooks",
        "bins": "codebook_size",
        "dimension": "hidden_size",
        "n_filters": "num_filters",
        "lstm_layers": "num_lstm_layers",
        **{same: same for same in ("kernel_size", "last_kernel_size", "residual_kernel_size", "compress")},
    }
    found = {theirs: getattr(sizes, ours) for theirs, ours in names.items()}
    assert found == {name: tuple(v) if isinstance(v := stated[name], list) else v for name in names}


def _check_clip(at: str, clip: dict[str, np.ndarray], about: dict[str, Any], bench: Bench[CodecSide]) -> None:
    audio, codes = clip["audio"][:, 0], clip["codes"].astype(np.int32)
    assert codes.shape[1:] == (about["n_q"], about["n_frames"])
    bench.compare(f"{at}.emb", clip["emb"], lambda side: embedding(side, audio))
    _check_margin(f"{at}.min_margin", clip["min_margin"], audio, codes, bench)
    own = bench.side.numpy(bench.side.codec.encode(audio, about["n_q"]))
    assert own.dtype == np.int32, f"{at}: codes are {own.dtype}"
    np.testing.assert_array_equal(own, codes, f"{at}.codes")
    bench.compare(f"{at}.quantized", clip["quantized"], lambda side: side.latents(codes))
    assert clip["decoded"].shape[2] == about["decoded_samples"]
    bench.compare(f"{at}.decoded", clip["decoded"][:, 0], lambda side: side.decode(codes))


def embedding(side: CodecSide, audio: np.ndarray) -> np.ndarray:
    """(B, L) → (B, C, T), the whole clip at once."""
    return side.conv(side.codec.encoder, audio[:, None])


def _check_margin(
    at: str, golden: np.ndarray, audio: np.ndarray, codes: np.ndarray, bench: Bench[CodecSide]
) -> None:
    """Compare the least margin with the original's, and that of the side under test, within rounding.

    One margin may be exact by chance. Each is bounded by the errors of all margins of its codebook and by
    the rounding of the two distances that it is the difference of.
    """
    sides = bench.torch64, bench.torch32, bench.side
    truth, known, own = (nearest(side, embedding(side, audio), codes) for side in sides)
    limit = FACTOR * np.abs(known.margins - truth.margins).max(axis=(1, 2), keepdims=True)
    limit += 2 * FLOOR * EPS * truth.terms.max(axis=(1, 2), keepdims=True)
    low, high = (truth.margins - limit).min(), (truth.margins + limit).min()
    for what, least in (("golden", float(golden)), ("own", float(own.margins.min()))):
        assert low <= least <= high, f"{at}: {what} {least:.4e} is outside {low:.4e} .. {high:.4e}"


class Nearest(NamedTuple):
    """Margins of the nearest entry over the second-nearest, and the terms of its distance; (Q, B, T) each."""

    margins: np.ndarray
    terms: np.ndarray


def nearest(side: CodecSide, latents: np.ndarray, codes: np.ndarray) -> Nearest:
    """Search every codebook after subtracting the given codes of those before it. (B, C, T), (B, Q, T)."""
    rest, margins, terms = latents.swapaxes(1, 2), [], []
    for q in range(codes.shape[1]):
        entries = side.numpy(side.codec.quantizer.layers[q].codebook.embed)
        own, theirs = np.sum(rest**2, -1), np.sum(entries**2, -1)
        distances = np.sort(own[..., None] - 2 * rest @ entries.T + theirs, axis=-1)
        margins.append(distances[..., 1] - distances[..., 0])
        terms.append(own + theirs[codes[:, q]])
        rest = rest - entries[codes[:, q]]
    return Nearest(np.stack(margins), np.stack(terms))


def _check_layers(at: str, about: dict[str, Any], vectors: Vectors, bench: Bench[CodecSide]) -> None:
    """Every listed module of encoder and decoder, run one after the other."""
    for stack in ("encoder", "decoder"):
        entered, pattern = vectors[about[f"{stack}_input"]], rf"layers\.{stack}\.model\.(\d+)"
        listed = [int(found[1]) for name in vectors.names if (found := re.fullmatch(pattern, name))]
        assert sorted(listed) == sorted(about[f"{stack}_modules"]), f"{at}: modules of the {stack}"
        for index in listed:
            run = partial(after, stack=stack, index=index, x=entered)
            bench.compare(f"{at}: {stack} layer {index}", vectors[f"layers.{stack}.model.{index}"], run)


def after(side: CodecSide, stack: str, index: int, x: np.ndarray) -> np.ndarray:
    """Output of layer `index` of a stack. (B, C, T) → (B, C, T)."""

    def run(x: Any) -> Any:
        for layer in getattr(side.codec, stack).layers[: index + 1]:
            x = layer(x)
            x = x[0] if isinstance(x, tuple) else x
        return x

    return side.conv(run, x)


def check_codec_wave(root: Path, side: str) -> None:
    """MetaVoice's codec: latents and waveform of the diffusion's codes, and the codes of a clip."""
    vectors = Vectors(root / "mbd.safetensors")
    bench = codec_bench(side, "encodec", root / "encodec.safetensors")
    config = read_json(existing(root / "encodec_config" / "config.json"))
    assert read_transformers(config) == bench.side.codec.config
    codes = vectors["codes"]
    bench.compare(f"{root.name}: latent", vectors["latent"], lambda s: s.latents(codes))
    bench.compare(f"{root.name}: codec_wav", vectors["codec_wav"][:, 0], lambda s: s.decode(codes))
    audio = vectors["codec_wav"][:, 0, 7:]
    books = bench.side.codec.n_codebooks
    heard = [s.numpy(s.codec.encode(audio, books)) for s in (bench.side, bench.torch64)]
    np.testing.assert_array_equal(heard[0], heard[1], f"{root.name}: codes of the codec's own wave")

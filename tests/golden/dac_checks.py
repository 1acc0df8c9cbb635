"""Checks of DAC's golden files: encoder, quantizer, decoder, and the waveforms of Dia's golden codes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.golden.bench import Bench
from tests.golden.cases import Case, Vectors, existing
from tests.golden.codec_bench import CodecSide, codec_bench
from tts_core.codecs.dac import decoded_length

ENCODED = ("audio", "padded_len", "encoder_out", "codes", "margin", "latents", "z")
NAMES = [*(f"enc.{name}" for name in ENCODED), "dec.codes", "dec.z", "dec.wav", "dec3.wav", "rt.wav"]
SMALL_MARGIN = 1e-4  # below it rounding may pick the other entry, and the frame's later codebooks follow


def check_dac(case: Case, side: str) -> None:
    """A case of kind `dac` on one side, from its checkpoint and from its transformers copy, if any."""
    vectors = case.vectors()
    vectors.require(NAMES)
    codecs = [case.path(case.info["weights"])]
    if (case.folder / "hf").exists():
        codecs += [case.folder / "hf"]
        for name in ("config.json", "model.safetensors"):
            existing(case.folder / "hf" / name)
    for codec in codecs:
        bench = codec_bench(side, "dac", codec)
        _check_codec(f"{case}, {codec.name}", vectors, bench)
        if codec.suffix == ".pth":
            _check_metadata(codec, bench)
    vectors.assert_all_read()


def check_e2e(case: Case, side: str) -> None:
    """A case of kind `e2e`: Dia's golden codes, decoded."""
    vectors, info = case.vectors(), case.info
    vectors.require(info["waves"])
    bench = codec_bench(side, "dac", case.path(info["dac"]))
    for name, source in info["waves"].items():
        codes = Vectors(case.path(source))[info["codes_key"]].T[None]
        bench.compare(f"{case}: {name}", vectors[name].reshape(1, -1), lambda s, c=codes: s.decode(c))
    vectors.assert_all_read()


def _check_codec(at: str, vectors: Vectors, bench: Bench[CodecSide]) -> None:
    config = bench.side.codec.config
    audio, codes = vectors["enc.audio"][:, 0], vectors["enc.codes"]
    length = -(-audio.shape[1] // config.hop_length) * config.hop_length
    assert vectors["enc.padded_len"].tolist() == [length], f"{at}: enc.padded_len"
    padded = np.pad(audio, ((0, 0), (0, length - audio.shape[1])))[:, None]

    def encoder_out(side: CodecSide) -> np.ndarray:
        return side.conv(side.codec.encoder, padded)

    bench.compare(f"{at}: enc.encoder_out", vectors["enc.encoder_out"], encoder_out)
    bench.compare(f"{at}: enc.latents", vectors["enc.latents"], lambda s: search(s, encoder_out(s), codes)[0])
    bench.compare(f"{at}: enc.margin", vectors["enc.margin"], lambda s: search(s, encoder_out(s), codes)[1])
    check_codes(f"{at}: enc.codes", bench.side.encode(audio), codes, vectors["enc.margin"])
    bench.compare(f"{at}: enc.z", vectors["enc.z"], lambda s: s.latents(codes))

    spoken = vectors["dec.codes"]
    bench.compare(f"{at}: dec.z", vectors["dec.z"], lambda s: s.latents(spoken))
    bench.compare(f"{at}: dec.wav", vectors["dec.wav"][:, 0], lambda s: s.decode(spoken))
    bench.compare(f"{at}: rt.wav", vectors["rt.wav"][:, 0], lambda s: s.decode(codes))
    few = vectors["dec3.wav"][:, 0]
    frames = [n for n in range(1, spoken.shape[2] + 1) if decoded_length(config, n) == few.shape[1]]
    assert frames, f"{at}: dec3.wav: no number of frames gives {few.shape[1]} samples"
    bench.compare(f"{at}: dec3.wav", few, lambda s: s.decode(spoken[:, :3, : frames[0]]))


def _check_metadata(weights: Path, bench: Bench[CodecSide]) -> None:
    import torch

    rate = torch.load(weights, weights_only=True)["metadata"]["kwargs"]["sample_rate"]
    assert bench.side.codec.sample_rate == rate, f"{weights}: sample rate {bench.side.codec.sample_rate}"


def search(side: CodecSide, latents: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Residuals and margins of every codebook, with the golden codes of the books before it.

    latents: (B, C, T) → (B, Q E, T) projections, and (B, Q, T) margins to the best entry.
    """
    seen, margins, rest = [], [], latents
    for q, quantizer in enumerate(side.codec.quantizer.quantizers):
        seen.append(side.conv(quantizer.in_proj, rest))
        entries = side.numpy(quantizer.codebook.weight)
        near = np.sort(_distances(seen[-1], entries), axis=-1)
        margins.append(near[..., 1] - near[..., 0])
        raw = np.ascontiguousarray(entries[codes[:, q]].swapaxes(1, 2))
        rest = rest - side.conv(quantizer.out_proj, raw)
    return np.concatenate(seen, axis=1), np.stack(margins, axis=1)


def _distances(encodings: np.ndarray, entries: np.ndarray) -> np.ndarray:
    """Squared distances of unit vectors. (B, E, T), (V, E) → (B, T, V)."""
    e = encodings.swapaxes(1, 2)
    e = e / np.maximum(np.linalg.norm(e, axis=-1, keepdims=True), 1e-12)
    c = entries / np.maximum(np.linalg.norm(entries, axis=-1, keepdims=True), 1e-12)
    return np.sum(e**2, axis=-1, keepdims=True) - 2 * e @ c.T + np.sum(c**2, axis=-1)


def check_codes(at: str, own: np.ndarray, golden: np.ndarray, margin: np.ndarray) -> None:
    """Require equal codes; a frame is free from its first near-tie on."""
    assert own.shape == golden.shape, f"{at}: shape {own.shape}, expected {golden.shape}"
    sure = np.logical_and.accumulate(margin >= SMALL_MARGIN, axis=1)
    assert sure.mean() > 0.5, f"{at}: only {sure.mean():.0%} of the codes have a margin that decides"
    wrong = np.argwhere(sure & (own != golden))
    if len(wrong):
        b, q, t = (int(i) for i in wrong[0])
        raise AssertionError(
            f"{at}: {len(wrong)} of {sure.sum()} codes differ, first at item {b}, codebook {q}, frame {t}: "
            f"{own[b, q, t]} for {golden[b, q, t]}, margin {margin[b, q, t]:.2e}"
        )

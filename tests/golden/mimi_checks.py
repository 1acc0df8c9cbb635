"""Checks of Mimi's golden folders: clips both ways, every layer, and streams in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from converters.files.readers import SafetensorsCheckpoint
from converters.maps.mimi import kyutai_rules
from converters.rules.assignment import assigned
from tests.golden.bench import Bench
from tests.golden.cases import Case, Vectors
from tests.golden.codec_bench import CodecSide, bench_of, codec_bench
from tests.tiny.networks import Weights
from tests.tolerance import EPS, FACTOR, FLOOR
from tts_core.codecs.mimi import STEPS, MimiConfig, parameter_shapes


def check_mimi(case: Case, side: str) -> None:
    """Check everything in a folder on one side; both layouts of the weights give the same codec."""
    info, vectors = case.info, case.vectors()
    config = case.path(info["config"])
    bench = codec_bench(side, "mimi", case.path(info["weights"]), config)
    other = _kyutai(side, case.path(info["kyutai_weights"]), bench.side.codec.config)
    for i, (length, frames) in enumerate(zip(info["lengths"], info["encoded_frames"], strict=True)):
        assert vectors[f"enc.{i}.audio"].shape[-1] == length, f"{case}: clip {i}"
        assert vectors[f"enc.{i}.codes"].shape[-1] == frames, f"{case}: clip {i}"
        _check_clip(f"{case}: enc.{i}", i, vectors, bench)
    _check_layers(str(case), vectors, bench)
    codes, wave = vectors["dec.codes"], vectors["dec.wav"][:, 0]
    assert codes.shape[-1] == info["frames"] == sum(info["split"])
    for layout in (bench, other):
        layout.compare(f"{case}: dec.wav", wave, lambda each: each.decode(codes))
    _check_other_decodes(str(case), vectors, bench)
    for split in (info["split"], [1] * info["frames"]):
        bench.compare(f"{case}: pieces {split}", wave, partial(in_pieces, codes=codes, split=split))
    begin = codes[:, :, : info["stream_frames"]]
    bench.compare(f"{case}: stream.wav", vectors["stream.wav"][:, 0], lambda each: each.decode(begin))
    vectors.assert_all_read()


def _kyutai(side: str, file: Path, config: MimiConfig) -> Bench[CodecSide]:
    """kyutai's own layout, which states no sizes."""
    checkpoint = SafetensorsCheckpoint([file])
    moves = assigned(kyutai_rules(config), checkpoint.shapes, parameter_shapes(config))
    made = {move.target: move.how.apply(*map(checkpoint.read, move.sources)) for move in moves}
    return bench_of(side, "mimi", Weights(config, made))


def _check_clip(at: str, i: int, vectors: Vectors, bench: Bench[CodecSide]) -> None:
    audio, codes = vectors[f"enc.{i}.audio"][:, 0], vectors[f"enc.{i}.codes"]
    sizes: MimiConfig = bench.side.codec.config
    own = bench.side.numpy(bench.side.codec.encode(audio, sizes.n_codebooks))
    assert own.dtype == np.int32, f"{at}: codes are {own.dtype}"
    np.testing.assert_array_equal(own, codes, f"{at}.codes")
    padded = np.pad(audio, ((0, 0), (0, -audio.shape[1] % sizes.hop_length)))
    kyutai = bench.side.numpy(bench.side.codec.encode(padded, sizes.n_codebooks))
    np.testing.assert_array_equal(kyutai, vectors[f"enc.{i}.kyutai_codes"], f"{at}.kyutai_codes")
    if f"enc.{i}.codes_first2" in vectors:
        two = bench.side.numpy(bench.side.codec.encode(audio, 2))
        np.testing.assert_array_equal(two, vectors[f"enc.{i}.codes_first2"], f"{at}.codes_first2")
    check_margin(f"{at}.margin", vectors[f"enc.{i}.margin"], audio, codes, bench)
    for name, run in {"seanet": convolved, "transformer": attended, "latents": latents}.items():
        if f"enc.{i}.{name}" in vectors:
            bench.compare(f"{at}.{name}", vectors[f"enc.{i}.{name}"], lambda each, run=run: run(each, audio))


def convolved(side: CodecSide, audio: np.ndarray) -> np.ndarray:
    """(B, L) → (B, C, T), the encoder's convolutions over the whole clip."""
    return side.conv(side.codec.encoder, audio[:, None])


def attended(side: CodecSide, audio: np.ndarray) -> np.ndarray:
    """(B, L) → (B, C, T), after the encoder's transformer."""
    return side.conv(lambda x: side.codec.encoder_transformer(side.codec.encoder(x)), audio[:, None])


def latents(side: CodecSide, audio: np.ndarray) -> np.ndarray:
    """(B, L) → (B, C, T), what the quantizers encode."""
    codec = side.codec
    return side.conv(lambda x: codec.downsample(codec.encoder_transformer(codec.encoder(x))), audio[:, None])


def check_margin(
    at: str, golden: np.ndarray, audio: np.ndarray, codes: np.ndarray, bench: Bench[CodecSide]
) -> None:
    """Compare the margin of every choice with the original's, within rounding of the two distances."""
    truth, known = (margins(side, latents(side, audio), codes) for side in (bench.torch64, bench.torch32))
    limit = FACTOR * np.abs(known[0] - truth[0]).max(axis=(1, 2), keepdims=True)
    limit = limit + 2 * FLOOR * EPS * truth[1].max(axis=(1, 2), keepdims=True)
    assert (np.abs(golden - truth[0][:, 0]) <= limit[:, 0]).all(), f"{at}: {golden} is not {truth[0][:, 0]}"
    assert (golden > 0).all(), at


def margins(side: CodecSide, x: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distance of the second-nearest entry less that of the chosen one, and what a unit of rounding moves it.

    (B, C, T), (B, Q, T) → (Q, B, T) each.
    """
    quantizer, found, terms = side.codec.quantizer, [], []
    books = [
        (half, q)
        for half in (
            quantizer.semantic_residual_vector_quantizer,
            quantizer.acoustic_residual_vector_quantizer,
        )
        for q in range(len(half.layers))
    ]
    rest: np.ndarray = x
    for channel, (half, q) in enumerate(books[: codes.shape[1]]):
        if q == 0:
            rest = side.conv(half.input_proj, x).swapaxes(1, 2)
        entries = side.numpy(half.layers[q].codebook.embed)
        distances = np.sqrt(np.square(rest[:, :, None] - entries).sum(-1))
        chosen = np.take_along_axis(distances, codes[:, channel, :, None], -1)[..., 0]
        np.put_along_axis(distances, codes[:, channel, :, None], np.inf, -1)
        found.append(distances.min(-1) - chosen)
        squares = np.square(rest).sum(-1) + np.square(entries[codes[:, channel]]).sum(-1)
        terms.append(squares / chosen)
        rest = rest - entries[codes[:, channel]]
    return np.stack(found), np.stack(terms)


def _check_layers(at: str, vectors: Vectors, bench: Bench[CodecSide]) -> None:
    """Every listed layer of the decoder, which runs once from codes on."""
    codes = vectors["dec.codes"]
    known = {"dec.latents": "quantizer.decode", "dec.upsampled": "upsample"}
    known |= {"dec.transformer": "decoder_transformer"}
    parts = {"dec.layer": "decoder_transformer.layers", "dec.seanet": "decoder.layers"}
    listed = {name: name.rpartition(".") for name in vectors.names}
    known |= {name: f"{parts[part]}.{index}" for name, (part, _, index) in listed.items() if part in parts}

    def run(side: CodecSide) -> dict[str, np.ndarray]:
        made = side.outputs(lambda: in_pieces(side, codes, [codes.shape[2]]), *known.values())
        # a layer of the transformer gives (B, T, C) on both sides
        turned = {
            path for path in made if side.kind == "mlx" or path.startswith("decoder_transformer.layers")
        }
        return {path: x.swapaxes(1, 2) if path in turned else x for path, x in made.items()}

    runs = {id(side): run(side) for side in vars(bench).values()}
    for name, path in known.items():
        bench.compare(f"{at}: {name}", vectors[name], lambda side, path=path: runs[id(side)][path])
    quantizer = bench.side.codec.quantizer
    first = {
        "dec.embed.0": quantizer.semantic_residual_vector_quantizer.layers[0],
        "dec.embed.1": quantizer.acoustic_residual_vector_quantizer.layers[0],
    }
    for name, book in first.items():
        np.testing.assert_array_equal(bench.side.numpy(book.codebook.embed), vectors[name], f"{at}: {name}")


def _check_other_decodes(at: str, vectors: Vectors, bench: Bench[CodecSide]) -> None:
    """Two codebooks, and a batch of the first frames and, reversed, the last."""
    codes, two = vectors["dec.codes"], vectors["dec.wav_first2"][:, 0]
    bench.compare(f"{at}: dec.wav_first2", two, lambda side: side.decode(codes[:, :2]))
    batch = vectors["dec.wav_batch"][:, 0]
    frames = batch.shape[1] // bench.side.codec.hop_length
    both = np.concatenate([codes, codes[:, :, ::-1]])[:, :, :frames]
    bench.compare(f"{at}: dec.wav_batch", batch, lambda side: side.decode(both))


def in_pieces(side: CodecSide, codes: np.ndarray, split: Sequence[int]) -> np.ndarray:
    """Decode a stream. (B, Q, T) → (B, L)."""
    states, made = None, []
    stops = np.cumsum(split)
    for start, stop in zip(stops - split, stops, strict=True):
        samples, states = side.codec.decode_window(codes[:, :, start:stop], states)
        assert samples.shape[1] == (stop - start) * side.codec.hop_length
        assert {state.steps for state in states} == {STEPS * stop}
        made.append(side.numpy(samples))
    return np.concatenate(made, axis=1)

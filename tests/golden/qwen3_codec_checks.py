"""Checks of golden folders of Qwen3-TTS's codec: clips both ways, every layer, pieces and streams."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tests.golden import mimi_checks
from tests.golden.bench import Bench
from tests.golden.cases import Case, Vectors
from tests.golden.codec_bench import CodecSide
from tests.golden.qwen3_bench import codec_bench
from tts_core.codecs.qwen3_codec import CONTEXT, PIECE, original_pieces
from tts_core.nn.windows import Window

STREAM_BOUND = 0.05  # of full scale, beyond the first piece: docs/use/qwen3_tts.md


def check_codec(case: Case, side: str) -> None:
    """Check everything in a folder on one side."""
    info, vectors, bench = case.info, case.vectors(), codec_bench(side, case.folder)
    codec = bench.side.codec
    assert (codec.sample_rate, codec.hop_length) == (info["sample_rate"], info["hop"])
    for i in range(info["encodings"]):
        _check_clip(f"{case}: enc.{i}", f"enc.{i}", vectors, bench)
    _check_batch(str(case), info["batch"], vectors, bench)
    _check_layers(str(case), vectors, bench)
    codes = vectors["dec.codes"]
    assert codes.shape[2] == info["frames"]
    bench.compare(f"{case}: dec.wav", vectors["dec.wav"][:, 0], lambda each: each.decode(codes))
    for i, (size, context) in enumerate(info["split"]):
        pieces = original_pieces(codes.shape[2], size, context)
        run = partial(_apart, codes=codes, pieces=pieces)
        bench.compare(f"{case}: chunk.{i}.wav", vectors[f"chunk.{i}.wav"][:, 0], run)
    for split in ([1] * codes.shape[2], [codes.shape[2] - 4, 4]):
        run = partial(in_pieces, codes=codes, split=split)
        bench.compare(f"{case}: pieces {split}", vectors["dec.wav"][:, 0], run)
    _check_padding(str(case), vectors, bench)
    if "long" in info:
        _check_long(str(case), info["long"], vectors, bench)
    vectors.assert_all_read()


def _check_clip(at: str, name: str, vectors: Vectors, bench: Bench[CodecSide]) -> None:
    audio, codes = vectors[f"{name}.audio"][None], vectors[f"{name}.codes"].T[None]
    own = bench.side.encode(audio)
    assert own.dtype == np.int32, f"{at}: codes are {own.dtype}"
    np.testing.assert_array_equal(own, codes, f"{at}.codes")
    halves = Bench(*(CodecSide(each.kind, each.codec.encoder) for each in _sides(bench)))
    mimi_checks.check_margin(f"{at}.margin", vectors[f"{name}.margin"], audio, codes, halves)
    parts = {
        "seanet": mimi_checks.convolved,
        "transformer": mimi_checks.attended,
        "latents": mimi_checks.latents,
    }
    for part, run in parts.items():
        if f"{name}.{part}" in vectors:
            halves.compare(f"{at}.{part}", vectors[f"{name}.{part}"], lambda each, run=run: run(each, audio))


def _sides(bench: Bench[CodecSide]) -> list[CodecSide]:
    return [bench.side, bench.torch32, bench.torch64]


def _check_batch(at: str, count: int, vectors: Vectors, bench: Bench[CodecSide]) -> None:
    """Clips padded to the longest and cut again, and each alone."""
    clips = [vectors[f"batch.{i}.audio"] for i in range(count)]
    longest = max(map(len, clips))
    together = bench.side.encode(np.stack([np.pad(clip, (0, longest - len(clip))) for clip in clips]))
    for i, clip in enumerate(clips):
        frames = -(-len(clip) // bench.side.codec.hop_length)
        np.testing.assert_array_equal(
            together[i, :, :frames].T, vectors[f"batch.{i}.codes"], f"{at}: batch.{i}"
        )
        alone = bench.side.encode(clip[None])[0].T
        np.testing.assert_array_equal(alone, vectors[f"batch.{i}.alone"], f"{at}: batch.{i}.alone")


def _check_layers(at: str, vectors: Vectors, bench: Bench[CodecSide]) -> None:
    """Every listed layer of the decoder, from codes on; each prefix is run as a whole."""
    codes = vectors["dec.codes"]
    for name in vectors.names:
        part, _, index = name.rpartition(".")
        if part in ("dec.upsample", "dec.stage"):
            count = int(index) + 1
            run = partial(_convolved, codes=codes, part=part, count=count)
        elif part == "dec.layer":
            run = partial(_attended, codes=codes, count=int(index) + 1)
        elif name == "dec.quantized":
            run = partial(_latents, codes=codes)
        elif name == "dec.pre_conv":
            run = partial(_pre_conv, codes=codes)
        elif name == "dec.transformer":
            run = partial(_transformed, codes=codes)
        else:
            continue
        bench.compare(f"{at}: {name}", vectors[name], run)


def _latents(side: CodecSide, codes: np.ndarray) -> np.ndarray:
    return side.from_channels(side.codec.decoder.quantizer.decode(side.array(codes)))


def _pre_conv(side: CodecSide, codes: np.ndarray) -> np.ndarray:
    return side.conv(side.codec.decoder.pre_conv, _latents(side, codes))


def _attended(side: CodecSide, codes: np.ndarray, count: int) -> np.ndarray:
    """(B, Q, T) → (B, T, D), after the first `count` layers."""
    transformer = side.codec.decoder.pre_transformer
    x = transformer.input_proj(side.array(np.ascontiguousarray(_pre_conv(side, codes).swapaxes(1, 2))))
    places = transformer.places(x)
    for i in range(count):
        x = transformer.layers[i](x, places)
    return side.numpy(x)


def _transformed(side: CodecSide, codes: np.ndarray) -> np.ndarray:
    """(B, Q, T) → (B, T, C)."""
    run = side.conv(lambda x: side.codec.decoder.pre_transformer(x), _pre_conv(side, codes))
    return run.swapaxes(1, 2)


def _convolved(side: CodecSide, codes: np.ndarray, part: str, count: int) -> np.ndarray:
    """(B, Q, T) → (B, C, L), after the first `count` stages of a part."""
    decoder = side.codec.decoder

    def run(x: Any) -> Any:
        for layers in decoder.upsample[: count if part == "dec.upsample" else None]:
            for layer in layers:
                x = layer(x)
        for layer in decoder.decoder[: count if part == "dec.stage" else 0]:
            x = layer(x)
        return x

    return side.conv(run, _transformed(side, codes).swapaxes(1, 2))


def _apart(side: CodecSide, codes: np.ndarray, pieces: list[Window]) -> np.ndarray:
    return side.numpy(side.codec.decode_apart(codes, pieces))


def in_pieces(side: CodecSide, codes: np.ndarray, split: list[int]) -> np.ndarray:
    """Decode a stream. (B, Q, T) → (B, L)."""
    states, made = None, []
    stops = np.cumsum(split)
    for start, stop in zip(stops - split, stops, strict=True):
        samples, states = side.codec.decode_piece(codes[:, :, start:stop], states)
        assert samples.shape[1] == (stop - start) * side.codec.hop_length
        assert {state.steps for state in states} == {stop}
        made.append(side.numpy(samples))
    return np.concatenate(made, axis=1)


def _check_padding(at: str, vectors: Vectors, bench: Bench[CodecSide]) -> None:
    """A batch of codes of two lengths: the padding is decoded and cut."""
    codes = vectors["dec.codes"]
    lengths = [vectors[f"pad.{i}.wav"].shape[0] // bench.side.codec.hop_length for i in range(2)]
    both = np.concatenate([codes, codes])
    both[1] = 0
    both[1, :, : lengths[1]] = codes[0, :, : lengths[1]][:, ::-1]
    for i, frames in enumerate(lengths):

        def run(side: CodecSide, i: int = i, frames: int = frames) -> np.ndarray:
            return side.decode(both)[i, : frames * side.codec.hop_length]

        bench.compare(f"{at}: pad.{i}.wav", vectors[f"pad.{i}.wav"], run)


def _check_long(at: str, stated: dict[str, Any], vectors: Vectors, bench: Bench[CodecSide]) -> None:
    """Beyond one piece: the original's whole decode, and a stream."""
    codes, wave = vectors["long.codes"], vectors["long.wav"][None]
    assert (stated["chunk"], stated["left"], codes.shape[2]) == (PIECE, CONTEXT, stated["frames"])
    bench.compare(f"{at}: long.wav", wave, lambda each: each.decode(codes))
    frames = codes.shape[2]
    split = [PIECE, frames - PIECE]
    border = PIECE * bench.side.codec.hop_length
    begin, tail = wave[:, :border], vectors["long.whole_tail"][None]
    bench.compare(
        f"{at}: stream to the border", begin, lambda each: in_pieces(each, codes, split)[:, :border]
    )
    apart = np.abs(in_pieces(bench.side, codes, split) - wave)[:, border:].max()
    assert apart <= STREAM_BOUND, f"{at}: a stream is {apart} from the original beyond the border"
    bench.compare(f"{at}: long.whole_tail", tail, lambda each: in_pieces(each, codes, split)[:, border:])

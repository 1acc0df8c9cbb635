"""Checks of golden folders of Qwen3-TTS's codec: clips both ways, every layer, pieces and streams."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np

from tests.golden import mimi_checks
from tests.golden.bench import Bench
from tests.golden.cases import Case, Vectors
from tests.golden.codec_bench import CodecSide, codec_bench
from tts_core.codecs.qwen3_codec import CONTEXT, PIECE, original_windows
from tts_core.nn.windows import Window

LAYERS = {
    r"dec\.quantized": "decoder.quantizer.decode",
    r"dec\.pre_conv": "decoder.pre_conv",
    r"dec\.layer\.(\d+)": r"decoder.pre_transformer.layers.\1",
    r"dec\.transformer": "decoder.pre_transformer",
    r"dec\.upsample\.(\d+)": r"decoder.upsample.\1.{last}",
    r"dec\.stage\.(\d+)": r"decoder.decoder.\1",
}
STREAM_BOUND = 0.05  # of full scale, beyond the first piece: docs/use/qwen3_tts.md


def check_codec(case: Case, side: str) -> None:
    """Check everything in a folder on one side."""
    info, vectors, bench = (
        case.info,
        case.vectors(),
        codec_bench(side, "qwen3_codec", case.folder / "model.safetensors"),
    )
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
        pieces = original_windows(codes.shape[2], size, context)
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
    """Every listed layer of the decoder, which runs once from codes on."""
    codes, known = vectors["dec.codes"], dict[str, str]()
    last = len(bench.side.codec.decoder.upsample[0]) - 1
    for name in vectors.names:
        for pattern, path in LAYERS.items():
            if found := re.fullmatch(pattern, name):
                known[name] = found.expand(path).format(last=last)

    def run(side: CodecSide) -> dict[str, np.ndarray]:
        made = side.outputs(lambda: side.codec.decode_window(codes, None), *known.values())
        # of the vectors the transformer's are (B, T, C), others (B, C, T)
        own = [path for path in made if path.startswith("decoder.pre_transformer")]
        turned = made.keys() - own if side.kind == "mlx" else {"decoder.pre_transformer"} & made.keys()
        return made | {path: made[path].swapaxes(1, 2) for path in turned}

    runs = {id(side): run(side) for side in vars(bench).values()}
    for name, path in known.items():
        bench.compare(f"{at}: {name}", vectors[name], lambda side, path=path: runs[id(side)][path])


def _apart(side: CodecSide, codes: np.ndarray, pieces: list[Window]) -> np.ndarray:
    return side.numpy(side.codec.decode_apart(codes, pieces))


def in_pieces(side: CodecSide, codes: np.ndarray, split: list[int]) -> np.ndarray:
    """Decode a stream. (B, Q, T) → (B, L)."""
    states, made = None, []
    stops = np.cumsum(split)
    for start, stop in zip(stops - split, stops, strict=True):
        samples, states = side.codec.decode_window(codes[:, :, start:stop], states)
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

"""Both sides against transformers' codecs: random weights, saved by it, read through our maps.

The result of transformers in float32 replaces a golden vector (tests/tolerance.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("mlx.core")

import torch

from tests.golden.bench import Bench
from tests.golden.codec_bench import CodecSide, codec_bench
from tests.golden.mimi_checks import in_pieces
from tests.oracles.codecs import KINDS, Oracle, clip
from tests.parity.codecs.kinds import decoded_at_once, samples_of
from tests.sides import SIDES
from tests.temporary import run_folder
from tests.tolerance import FACTOR
from tts_core.codecs.policy import CodecPolicy

pytestmark = pytest.mark.rest

NAMES = [(kind, name) for kind, made in KINDS.items() for name in made.configs]
LENGTHS = (1, 2, 50, 320, 701, 1009, 2503)


@cache
def made(kind: str, name: Any) -> Oracle:
    return KINDS[kind](name, run_folder("oracles"))


@cache
def loaded(kind: str, name: Any, side: str) -> Bench[CodecSide]:
    return codec_bench(side, kind, made(kind, name).folder)


@cache
def telling_clip(kind: str, name: Any, length: int) -> np.ndarray:
    """The first clip of that length without a code that rounding may decide."""
    oracle, bench = made(kind, name), loaded(kind, name, "torch")
    for seed in range(length, length + 30):
        samples = clip(seed, 2, length)
        whole = oracle.whole(samples)
        codes = oracle.encode(whole, max(oracle.books)).numpy()
        if oracle.lead((bench.torch64, bench.torch32), whole[:, 0].numpy(), codes) > FACTOR:
            return samples
    raise AssertionError(f"every clip of {length} samples has a near-tie")


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_encode(kind: str, name: Any, length: int, side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of the encoder within the bound and equal codes, in whole windows and in ones of 9 frames."""
    oracle, bench = made(kind, name), loaded(kind, name, side)
    samples, hop = telling_clip(kind, name, length), bench.side.codec.config.hop_length
    whole = oracle.whole(samples)
    for part, (theirs, ours) in oracle.parts.items():
        bench.compare(
            part, theirs(whole).numpy(), lambda each, run=ours: run(each, whole[:, 0].numpy().copy())
        )
    for largest in (None, 9):
        if largest:
            monkeypatch.setattr(bench.side.codec, "policy", CodecPolicy(largest))
        for books in oracle.books:
            codes = oracle.encode(whole, books).numpy()
            assert codes.shape == (2, books, -(-length // hop))
            more = () if kind == "dac" else (books,)
            own = bench.side.numpy(bench.side.codec.encode(samples, *more))
            assert own.dtype == np.int32
            np.testing.assert_array_equal(own, codes, f"{length} samples, {books} codebooks, {largest}")
    if kind == "dac":
        golden = oracle.network.encode(whole).quantized_representation.numpy()
        bench.compare("z", golden, lambda each: each.latents(codes))


@pytest.mark.parametrize(("kind", "name"), [one for one in NAMES if one[0] != "dac"])
def test_codes_use_the_codebooks(kind: str, name: Any) -> None:
    """Over half of the entries of every codebook, so that equal codes are evidence."""
    oracle, hop = made(kind, name), loaded(kind, name, "torch").side.codec.config.hop_length
    codes = oracle.encode(torch.from_numpy(clip(3, 2, 200 * hop))[:, None], max(oracle.books)).numpy()
    size = oracle.network.config.codebook_size
    assert all(len(np.unique(codes[:, q])) > size / 2 for q in range(codes.shape[1]))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("frames", [1, 2, 7, 26])
@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_decode(kind: str, name: Any, frames: int, side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All codebooks and fewer, in whole windows, in small ones, and in pieces of a stream of Mimi.

    transformers keeps no state of convolutions when decoding; the whole decode is the reference.
    """
    oracle, bench, rng = made(kind, name), loaded(kind, name, side), np.random.default_rng(frames)
    config = bench.side.codec.config
    fewer = {"dac": config.n_codebooks, "encodec": 1, "mimi": getattr(config, "n_semantic", 1)}[kind]
    golden, codes = np.zeros(0), np.zeros(0, np.int32)
    for books in dict.fromkeys((fewer, config.n_codebooks)):
        codes = rng.integers(0, config.codebook_size, (2, books, frames)).astype(np.int32)
        golden = oracle.decode(torch.from_numpy(codes).long()).numpy()
        assert golden.shape == (2, samples_of(config, frames))
        bench.compare(f"{books} codebooks", golden, partial(CodecSide.decode, codes=codes))
    if kind == "dac":
        z = oracle.network.quantizer.from_codes(torch.from_numpy(codes).long())[0].numpy()
        bench.compare("z", z, partial(CodecSide.latents, codes=codes))
    if kind == "mimi":
        for split in ([1] * frames, [frames - frames // 2, frames // 2][: min(2, frames)]):
            bench.compare(f"{split}", golden, partial(in_pieces, codes=codes, split=split))
    with monkeypatch.context() as patch:
        for each in vars(bench).values():
            patch.setattr(each.codec, "policy", CodecPolicy(5, first_frames=3))
        bench.compare("small windows", golden, lambda each: each.decode(codes))
        if kind == "dac":  # in float64 one missing frame of context has a million times the error of rounding
            exact = bench.torch64
            whole = decoded_at_once(exact, codes)
            np.testing.assert_allclose(exact.decode(codes), whole, rtol=0, atol=1e-12)


def test_the_old_names_of_weight_norm(tmp_path: Path) -> None:
    """The names in facebook/encodec_24khz; newer versions of transformers save the parametrization's."""
    folder = made("encodec", "3-2-5").folder
    old = {"parametrizations.weight.original0": "weight_g", "parametrizations.weight.original1": "weight_v"}
    renamed = load_file(folder / "model.safetensors")
    for new, name in old.items():
        renamed = {key.replace(new, name): tensor for key, tensor in renamed.items()}
    assert any(name.endswith("weight_g") for name in renamed)
    save_file(renamed, tmp_path / "model.safetensors")
    (tmp_path / "config.json").symlink_to(folder / "config.json")
    both = (codec_bench("torch", "encodec", place).side.codec for place in (tmp_path, folder))
    for ours, theirs in zip(*(codec.parameters() for codec in both), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_sizes_are_read_from_the_saved_configuration(kind: str, name: Any) -> None:
    stated, codec = made(kind, name).network.config, loaded(kind, name, "torch").side.codec
    own = codec.config
    assert (codec.sample_rate, own.codebook_size) == (stated.sampling_rate, stated.codebook_size)
    assert own.n_codebooks == (stated.n_codebooks if kind == "dac" else stated.num_quantizers)
    if kind == "mimi":
        assert own.frame_rate == stated.frame_rate
    if kind == "dac":
        assert list(own.downsampling_ratios) == stated.downsampling_ratios
        assert own.hidden_size == stated.hidden_size == 128
    if kind != "mimi":
        ratios = stated.downsampling_ratios if kind == "dac" else stated.upsampling_ratios
        assert own.hop_length == np.prod(ratios)

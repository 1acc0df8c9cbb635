"""Full-size Mimi under the rules of MPS: our layers break no rule, torch's own layers some."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.limits.workloads import pairs
from tests.golden.codec_bench import bench_of
from tests.tiny.mimi import mimi_config, mimi_weights
from tests.torch_ref.limits.stand_ins import stand_ins
from torch_ref.codecs.mimi import Mimi
from torch_ref.layers import conv
from torch_ref.limits import Backend, enforce, observe
from tts_core.codecs.mimi import MIMI_24KHZ

pytestmark = pytest.mark.rest

FRAMES = 70  # a window and more: 134,400 samples, over 65,536
SAMPLES = torch.zeros(1, FRAMES * MIMI_24KHZ.hop_length - 5, device="meta")
CODES = torch.zeros(1, 32, FRAMES, dtype=torch.int32, device="meta")


@pytest.fixture(scope="module")
def mimi() -> Mimi:
    """A network of shapes only: no weight is allocated."""
    with torch.device("meta"):
        return Mimi(MIMI_24KHZ).eval()


@pytest.mark.parametrize("backend", stand_ins("without LSTM"), ids=str)
def test_full_size(mimi: Mimi, backend: Backend) -> None:
    with enforce(backend) as watch:
        assert mimi.encode(SAMPLES, 32).shape == (1, 32, FRAMES)
        assert mimi.decode(CODES).shape == (1, FRAMES * MIMI_24KHZ.hop_length)
        assert mimi.decode_piece(CODES[..., :1], None)[0].shape == (1, MIMI_24KHZ.hop_length)
    assert watch.calls > 0


@pytest.mark.parametrize("backend", [each for each in pairs() if each.macos in ("14.5", "15.0")], ids=str)
def test_without_our_layers_a_rule_is_broken(mimi: Mimi, backend: Backend, monkeypatch) -> None:
    """Before macOS 15.1 torch convolves at most 65,536 samples."""
    monkeypatch.setattr(conv, "longest_convolution", lambda device: None)
    with observe(backend) as seen:
        mimi.decode(CODES)
    assert "conv-65536" in seen.broken


@pytest.mark.parametrize(("release", "macos"), [("2.11.0", "14.5"), ("2.12.1", "15.0"), ("2.15.0", "26.2")])
def test_the_same_numbers_under_the_rules(release: str, macos: str) -> None:
    mimi = bench_of("torch", "mimi", mimi_weights(mimi_config(), seed=1)).side.codec
    samples = torch.from_numpy(np.random.default_rng(0).normal(0, 1, (2, 700)).astype(np.float32))

    def run() -> list[np.ndarray]:
        codes = mimi.encode(samples, 5)
        return [codes.numpy(), mimi.decode(codes).numpy()]

    plain = run()
    with enforce(Backend("mps", release, macos)) as watch:
        limited = run()
    assert watch.calls > 0
    np.testing.assert_array_equal(limited[0], plain[0])
    np.testing.assert_allclose(limited[1], plain[1], rtol=0, atol=2e-5 * np.abs(plain[1]).max())

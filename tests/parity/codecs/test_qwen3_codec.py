"""Windows of the encoder of Qwen3-TTS's codec, and the pieces of its original decoder."""

import numpy as np
import pytest

from tests.parity.codecs.kinds import QWEN3, bench
from tests.tiny.inputs import normal
from tts_core.codecs.policy import CodecPolicy
from tts_core.codecs.qwen3_codec import QWEN3_CODEC_12HZ, original_windows


@pytest.mark.parametrize("samples", [1, 59, 60, 61, 700])
def test_encoding_is_equal_in_any_windows(samples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    [config] = QWEN3.values()
    trio, sound = bench(config), normal(6, 2, samples)
    whole = trio.torch64.encode(sound)
    assert whole.shape == (2, config.n_codebooks, -(-samples // config.hop_length))
    for side in vars(trio).values():
        for most in (1, 3, 64):
            monkeypatch.setattr(side.codec, "policy", CodecPolicy(max_frames=most, first_frames=1))
            np.testing.assert_array_equal(side.encode(sound), whole, f"{side.kind}, {most}")


def test_original_pieces() -> None:
    """Pieces of 300 frames, each with 25 of context; the published transformer reads more than that."""
    [first, *others] = pieces = original_windows(700)
    spans = [(piece.first, piece.start, piece.stop) for piece in pieces]
    assert spans == [(0, 0, 300), (275, 300, 600), (575, 600, 700)]
    assert (original_windows(300), len(others)) == ([first], 2)
    assert QWEN3_CODEC_12HZ.decoder.sliding_window > 25

import numpy as np
import pytest

from tts_core.audio.voice_cache import MOST, VoiceCache, key

VOICE = np.array([0.6, 0.0, 0.8], np.float32)
ONE, OTHER = np.arange(5, dtype=np.float32), np.arange(6, dtype=np.float32)


class Encoder:
    """Encoder that counts its calls."""

    def __init__(self, vector: np.ndarray = VOICE):
        self.vector, self.calls = vector, 0

    def __call__(self, utterances):
        self.calls += 1
        return self.vector


def test_the_same_samples_are_encoded_once():
    cache, embed = VoiceCache(), Encoder()
    for _ in range(3):
        np.testing.assert_array_equal(cache.encoded([ONE.copy()], embed), VOICE)
    assert embed.calls == 1
    cache.encoded([ONE, OTHER], embed)
    cache.encoded([OTHER, ONE], embed)
    assert embed.calls == 3
    with pytest.raises(ValueError, match="read-only"):
        cache.encoded([ONE], embed)[0] = 1
    assert embed.vector.flags.writeable  # the encoder's own


def test_a_key_is_the_content():
    """Every bit and the borders between recordings count; the array's layout does not."""
    nudged = ONE.copy()
    nudged[2] = np.nextafter(nudged[2], np.float32(9))
    both = np.concatenate([ONE, OTHER])
    keys = [key(each) for each in ([ONE], [nudged], [ONE, OTHER], [both], [both[:4], both[4:]], [])]
    assert len(set(keys)) == len(keys)
    assert key([np.arange(10, dtype=np.float32)[::2] / 2]) == key([ONE])
    assert key([ONE.astype(np.float64)]) == key([ONE])


def test_memory_holds_the_latest():
    cache, embed = VoiceCache(), Encoder()
    for i in range(MOST + 1):
        cache.encoded([np.full(2, i, np.float32)], embed)
        cache.encoded([np.zeros(2, np.float32)], embed)  # the first stays in use
    calls = embed.calls
    assert calls == MOST + 1
    cache.encoded([np.zeros(2, np.float32)], embed)
    assert embed.calls == calls
    cache.encoded([np.ones(2, np.float32)], embed)
    assert embed.calls == calls + 1

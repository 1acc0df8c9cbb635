import numpy as np
import pytest

from tts_core.metavoice.speaker_cache import KEPT, SpeakerCache, cache_folder, fingerprint

VOICE = np.array([0.6, 0.0, 0.8], np.float32)
ONE, OTHER = np.arange(5, dtype=np.float32), np.arange(6, dtype=np.float32)


class Encoder:
    """Counts how often it is asked."""

    def __init__(self, vector: np.ndarray = VOICE):
        self.vector, self.calls = vector, 0

    def __call__(self, utterances):
        self.calls += 1
        return self.vector


def test_the_same_samples_are_embedded_once():
    cache, embed = SpeakerCache("weights"), Encoder()
    for _ in range(3):
        np.testing.assert_array_equal(cache.embedding([ONE.copy()], embed), VOICE)
    assert embed.calls == 1
    cache.embedding([ONE, OTHER], embed)
    cache.embedding([OTHER, ONE], embed)
    assert embed.calls == 3
    with pytest.raises(ValueError, match="read-only"):
        cache.embedding([ONE], embed)[0] = 1


def test_a_key_is_the_content():
    """Any bit, where one recording ends and the next begins, the encoder; not the array's form."""
    cache = SpeakerCache("weights")
    nudged = ONE.copy()
    nudged[2] = np.nextafter(nudged[2], np.float32(9))
    both = np.concatenate([ONE, OTHER])
    keys = [cache.key(each) for each in ([ONE], [nudged], [ONE, OTHER], [both], [both[:4], both[4:]], [])]
    assert len(set(keys)) == len(keys)
    assert SpeakerCache("others").key([ONE]) != cache.key([ONE])
    assert cache.key([np.arange(10, dtype=np.float32)[::2] / 2]) == cache.key([ONE])
    assert cache.key([ONE.astype(np.float64)]) == cache.key([ONE])


def test_on_disk_between_runs(tmp_path):
    folder = tmp_path / "speakers"
    SpeakerCache("weights", folder).embedding([ONE], Encoder())
    (file,) = folder.iterdir()
    assert file.name == f"{SpeakerCache('weights').key([ONE])}.npy"
    again = Encoder(-VOICE)
    np.testing.assert_array_equal(SpeakerCache("weights", folder).embedding([ONE], again), VOICE)
    assert again.calls == 0
    SpeakerCache("other weights", folder).embedding([ONE], again)
    assert again.calls == 1


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\x93NUMPY",
        None,
        np.zeros(3, np.float32),
        VOICE.astype(np.float64),
        np.array([["x"]]),
        VOICE * 2,
    ],
    ids=["empty", "cut", "pickle", "zeros", "float64", "text", "long"],
)
def test_what_is_not_a_vector_on_disk_is_computed_anew(tmp_path, damaged):
    cache = SpeakerCache("weights", tmp_path)
    path = tmp_path / f"{cache.key([ONE])}.npy"
    if isinstance(damaged, bytes):
        path.write_bytes(damaged)
    else:
        np.save(path, np.array([{"a": 1}], object) if damaged is None else damaged, allow_pickle=True)
    embed = Encoder()
    np.testing.assert_array_equal(cache.embedding([ONE], embed), VOICE)
    assert embed.calls == 1
    np.testing.assert_array_equal(np.load(path), VOICE)


def test_a_folder_that_cannot_be_made_only_means_computing(tmp_path):
    (tmp_path / "file").write_text("x")
    cache, embed = SpeakerCache("weights", tmp_path / "file" / "speakers"), Encoder()
    np.testing.assert_array_equal(cache.embedding([ONE], embed), VOICE)


def test_memory_holds_the_latest():
    cache, embed = SpeakerCache("weights"), Encoder()
    for i in range(KEPT + 1):
        cache.embedding([np.full(2, i, np.float32)], embed)
        cache.embedding([np.zeros(2, np.float32)], embed)  # the first stays in use
    calls = embed.calls
    cache.embedding([np.zeros(2, np.float32)], embed)
    assert embed.calls == calls
    cache.embedding([np.ones(2, np.float32)], embed)
    assert embed.calls == calls + 1


def test_fingerprints():
    tensors = {"b": np.ones((2, 3), np.float32), "a": np.zeros(2, np.float32)}
    known = fingerprint(tensors.items(), "torch cpu")
    assert fingerprint(reversed(tensors.items()), "torch cpu") == known
    assert fingerprint(tensors.items(), "mlx") != known
    for name, changed in (
        ("b", np.ones((3, 2), np.float32)),
        ("b", np.ones((2, 3), np.float16)),
        ("a", np.array([0, 1e-7], np.float32)),
        ("c", np.zeros(2, np.float32)),
    ):
        assert fingerprint((tensors | {name: changed}).items(), "torch cpu") != known


def test_the_folder_follows_the_user_s_setting(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "mlx-port" / "speakers"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "mlx-port" / "speakers"

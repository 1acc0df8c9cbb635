"""Passages of several texts in one decode: grouping and cutting, with a decoder that returns its input."""

import numpy as np
import pytest

from tests.tiny.networks import dac_config
from tts_core.codecs.dac import decode_lookahead, decoded_length
from tts_core.codecs.dac_calls import Passage, calls, even, launch_passages, most_fed, split
from tts_core.codecs.policy import CodecPolicy
from tts_core.memory.machine import BACKENDS
from tts_core.nn.beside import Done

TINY = dac_config()


def text(item: int, frames: int) -> np.ndarray:
    """Codes that tell their text and frame, the same in every codebook."""
    return np.tile(1000 * item + np.arange(frames, dtype=np.int32), (TINY.n_codebooks, 1))


def spelled(codes: np.ndarray) -> np.ndarray:
    """A decode that repeats each frame's code hop times. (B, Q, F) → (B, F·hop)."""
    return codes[:, 0].repeat(TINY.hop_length, axis=1)


def test_each_passage_gets_its_own_samples_in_order() -> None:
    ahead = decode_lookahead(TINY)
    passages = [
        Passage(text(1, 40), 8, 24),
        Passage(text(2, 12), 0, 12),
        Passage(text(3, 60), 8, 24),
        Passage(text(4, 24 + ahead), 8, 24),
        Passage(text(5, 7), 7, 7),
    ]
    made = launch_passages(
        TINY, passages, lambda each: Done([spelled(codes) for codes in each]), most=10**6
    ).take()
    for passage, samples in zip(passages, made, strict=True):
        whole = spelled(passage.codes[None])[0, : decoded_length(TINY, passage.codes.shape[1])]
        ends = passage.stop == passage.codes.shape[1]
        last = len(whole) if ends else passage.stop * TINY.hop_length
        np.testing.assert_array_equal(samples, whole[passage.start * TINY.hop_length : last])
        assert samples.dtype == np.float32


def test_equal_lengths_share_a_call_up_to_the_limit() -> None:
    alike = [Passage(text(item, 90), 8, 16) for item in range(5)]
    passages = [*alike[:2], Passage(text(9, 5), 0, 5), *alike[2:]]
    [one, *_] = calls(TINY, passages, most=10**6)
    fed = one.codes.shape[2]

    def places(most: int) -> list[tuple[int, ...]]:
        return [call.rows for call in calls(TINY, passages, most=most)]

    assert places(10**6) == [(0, 1, 3, 4), (5,), (2,)], "a power of two"
    assert places(2 * fed) == [(0, 1), (3, 4), (5,), (2,)]
    assert places(4 * fed - 1) == [(0, 1), (3, 4), (5,), (2,)]
    assert places(0) == [(0,), (1,), (3,), (4,), (5,), (2,)]
    empty = Passage(text(7, 5), 5, 5)
    assert split(TINY, [empty, *passages], most=2 * fed) == [(1, 2), (4, 5), (6,), (3,), [0]]


def test_codes_of_fewer_books_are_a_call_of_their_own() -> None:
    passages = [Passage(text(1, 9), 0, 9), Passage(text(2, 9)[:2], 0, 9)]
    assert [call.codes.shape[:2] for call in calls(TINY, passages, most=99)] == [(1, 4), (1, 2)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_call_feeds_at_most_one_largest_window(backend: str) -> None:
    policy = CodecPolicy(32)
    most = most_fed(TINY, policy, backend=backend)
    if backend.endswith("cpu"):
        assert most == 0
        return
    frames = 300
    cuts = [Passage(text(item, frames), *cut) for item in range(9) for cut in policy.decode_cuts(frames)]
    made = [call.codes.shape for call in calls(TINY, cuts, most=most)]
    assert max(rows * fed for rows, _, fed in made) == most
    assert max(rows for rows, *_ in made) > 1


def test_lengths_are_few_and_never_above_the_most() -> None:
    assert [even(frames, 30) for frames in (0, 1, 8, 9, 24, 25, 30, 31)] == [0, 8, 8, 16, 24, 30, 30, 31]
    assert all(frames <= even(frames, 10**6) <= max(frames + 7, frames * 1.25) for frames in range(3000))
    assert len({even(frames, 10**6) for frames in range(33, 1025)}) == 4 * 5
    assert [even(frames, 0) for frames in range(99)] == [*range(99)], "on a CPU as they are"


def test_a_window_is_widened_by_earlier_frames_only() -> None:
    """Context that is not needed changes no sample; without earlier frames the window stays."""
    ahead = decode_lookahead(TINY)
    for start, stop in ((0, 5), (3, 20), (40, 61), (60, 90)):
        [call] = calls(TINY, [Passage(text(1, 90), start, stop)], most=200)
        fed, last = call.codes.shape[2], min(90, stop + ahead)
        assert call.codes[0, 0, -1] == text(1, 90)[0, last - 1]
        assert fed == even(fed, 200) or fed == last, (start, stop)


def test_the_longest_calls_come_first() -> None:
    """Memory that a call frees has room for those after it."""
    passages = [Passage(text(item, frames), 0, frames) for item, frames in enumerate((5, 40, 12, 40, 7))]
    assert [call.rows for call in calls(TINY, passages, most=0)] == [(1,), (3,), (2,), (4,), (0,)]

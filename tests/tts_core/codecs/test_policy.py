"""Windows of a codec: sizes below 1 are refused, large ones halved until they fit."""

import pytest

from tts_core.codecs.policy import CALL, DEFAULT, ROWS, WINDOW, CodecPolicy, fitting
from tts_core.errors import UsageError


@pytest.mark.parametrize("name", ["max_frames", "first_frames"])
@pytest.mark.parametrize("value", [0, -3])
def test_windows_of_nothing_are_refused(name, value):
    with pytest.raises(UsageError, match=f"^{name}: {value} is not a number of frames"):
        CodecPolicy(**{name: value})


def test_a_decode_starts_small_and_an_encode_does_not():
    policy = CodecPolicy(max_frames=10, first_frames=4)
    assert list(policy.decode_cuts(27)) == [(0, 4), (4, 12), (12, 22), (22, 27)]
    assert list(policy.even_cuts(27)) == [(0, 10), (10, 20), (20, 27)]
    assert list(CodecPolicy(3).decode_cuts(7)) == [(0, 3), (3, 6), (6, 7)]


def test_windows_that_nobody_hears_are_even():
    """At whichever of them a session is, and in the memory plan, which cuts a whole speech."""
    policy = CodecPolicy(max_frames=10, first_frames=4).in_largest()
    assert [policy.served_stop(start) for start in (0, 10, 20, 5000)] == [10, 20, 30, 5010]
    assert list(policy.decode_cuts(27)) == list(CodecPolicy(10).even_cuts(27))
    assert policy.in_largest() == policy


def test_smaller_ones_are_halves_down_to_the_first_window():
    assert [policy.max_frames for policy in CodecPolicy(100, 8).smaller()] == [50, 25, 12, 8]
    assert {policy.first_frames for policy in CodecPolicy(100, 5).smaller()} == {5}
    assert list(CodecPolicy(8).smaller()) == []


@pytest.mark.parametrize(
    ("free", "frames"), [(None, 256), (512, 256), (511, 128), (64, 32), (17, 8), (3, 8), (0, 8)]
)
def test_half_of_what_is_free_decides(free, frames):
    assert fitting(lambda policy: policy.max_frames, "torch-cpu", free) == CodecPolicy(frames)


@pytest.mark.parametrize(("free", "frames"), [(None, 768), (1536, 768), (1535, 384), (447, 192), (0, 5)])
def test_cuda_has_larger_windows(free, frames):
    assert fitting(lambda policy: policy.max_frames, "torch-cuda", free) == CodecPolicy(
        frames, first_frames=5, lead=3
    )


def test_nothing_is_asked_where_nobody_tells():
    assert fitting(lambda policy: pytest.fail("asked"), "mlx-metal", None) == DEFAULT


@pytest.mark.parametrize(
    ("lead", "made", "sizes_of_first"),
    [
        (4, 0.2, [8, 10, 12, 15, 19, 24]),
        (4, 4 / 5, [8, 10, 12, 15, 19, 24]),
        (2, 0.2, [8, 12, 18, 27, 40, 60]),
        (2, 2 / 3, [8, 12, 18, 27, 40, 60]),
    ],
)
def test_served_windows_leave_no_gap(lead: int, made: float, sizes_of_first: list[int]) -> None:
    """made: seconds to make a second of speech. Playback of a window ends after the next one is there."""
    policy, start, sizes = CodecPolicy(256, lead=lead), 0, []
    first = made * policy.served_stop(0)
    while start < 5000:
        stop = policy.served_stop(start)
        assert made * stop <= first + start + 1e-9
        sizes.append(stop - start)
        start = stop
    assert sizes[:6] == sizes_of_first
    assert sizes == sorted(sizes)
    assert sizes[-1] == 256


def test_windows_of_streams_that_share_calls() -> None:
    """From the first frame on, each four times, so that streams of unlike ages have equal ones; 27 shapes."""
    policy, start, sizes = CodecPolicy(64).in_rows(), 0, []
    while start < 200:
        sizes.append(policy.served_stop(start) - start)
        start = policy.served_stop(start)
    assert sizes[:16] == [1] * 4 + [2] * 4 + [4] * 4 + [8] * 4
    assert set(sizes[16:]) == {WINDOW}
    powers = [1 << power for power in range(ROWS.bit_length())]
    assert sum(rows * frames <= CALL for rows in powers for frames in powers if frames <= WINDOW) == 27

import numpy as np
import pytest

from tts_core.errors import UsageError
from tts_core.nn.noise import HostNoise, per_text, piece_seed

SHAPE = (9, 1028)
PINNED = [
    [[582873, 193723], [10266821, 4052523]],
    [6439467, 14939045, 32657, 13066105],
    [5832179, 16262377, 8586255, 10445251],
]  # times 2**-24
PINNED_NORMAL = [-0.78272, 0.68301, 1.09333, -1.23986]


def test_pinned_values():
    """These numbers must never change, so that a seed always gives the same speech."""
    assert (HostNoise(0).uniform(0, (2, 2)) * 2**24).astype(int).tolist() == PINNED[0]
    assert (HostNoise(1234).uniform(5, (4,)) * 2**24).astype(int).tolist() == PINNED[1]
    assert (HostNoise(2**64 - 1).uniform(10**6, (4,)) * 2**24).astype(int).tolist() == PINNED[2]


@pytest.mark.parametrize(
    ("seed", "derived"),
    [
        (0, [0, 4881901421217228719, 16452687389592421897]),
        (7, [7, 4042502035264064771, 17559002276220262541]),
        (2**64 - 1, [2**64 - 1, 15591386231082554480, 15835484829646641829]),
    ],
)
def test_pinned_seeds_of_pieces(seed, derived):
    """These numbers must never change, so that a seed always gives the same long text."""
    assert [piece_seed(seed, place) for place in range(3)] == derived


def test_strictly_between_0_and_1_and_exact():
    numbers = HostNoise(3).uniform(0, (1000, 1000))
    assert numbers.dtype == np.float32
    assert numbers.min() >= 2**-24
    assert numbers.max() <= 1 - 2**-24
    odd = numbers.astype(np.float64) * 2**24  # whole + a half, in units of 2**-23
    assert np.all(odd % 2 == 1)
    assert abs(numbers.mean(dtype=np.float64) - 0.5) < 5 * np.sqrt(1 / 12 / numbers.size)
    assert np.isfinite(-np.log(-np.log(numbers))).all()


@pytest.mark.parametrize("whole", [0, 2**23 - 1])
def test_the_extremes_stay_inside(whole, monkeypatch):
    class Bits:
        def integers(self, low, high, size, dtype):
            assert (low, high) == (0, 2**23)
            return np.full(size, whole, dtype)

    monkeypatch.setattr(np.random, "Generator", lambda _: Bits())
    value = HostNoise(0).uniform(0, (1,))[0]
    assert value == (np.float32(2**-24) if whole == 0 else np.float32(1 - 2**-24))
    assert 0 < value < 1


def test_order_of_calls_changes_nothing():
    forward, backward = HostNoise(7), HostNoise(7)
    there = [forward.uniform(step, SHAPE) for step in range(4)]
    back = [backward.uniform(step, SHAPE) for step in reversed(range(4))][::-1]
    np.testing.assert_array_equal(there, back)
    np.testing.assert_array_equal(forward.uniform(2, SHAPE), there[2])


def test_steps_do_not_overlap():
    """A step may draw any amount of numbers without overlapping the next step's."""
    long = HostNoise(5).uniform(0, (200_000,))
    head = HostNoise(5).uniform(1, (4,))
    windows = np.lib.stride_tricks.sliding_window_view(long, 4)
    assert not (windows == head).all(axis=1).any()


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_seed_outside_64_bits(seed):
    with pytest.raises(UsageError, match=f"seed: {seed} is outside"):
        HostNoise(seed)


def test_one_source_for_each_text():
    a, b = HostNoise(1), HostNoise(2)
    assert per_text(a, [5, 6, 7]) == [a, a, a]
    assert per_text([a, b], [5, 6]) == [a, b]
    fresh = per_text(None, [5, 6])
    np.testing.assert_array_equal(fresh[1].uniform(3, (4,)), HostNoise(6).uniform(3, (4,)))
    with pytest.raises(UsageError, match="2 sources for 3 texts"):
        per_text([a, b], [1, 2, 3])


def test_normal_numbers():
    """Moments of the standard normal, to five standard errors; the same call gives the same numbers."""
    numbers = HostNoise(3).normal(7, (2, 500_000)).astype(np.float64)
    assert HostNoise(3).normal(7, (4,)).dtype == np.float32
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((numbers**power).mean() - moment) < 5 * np.sqrt(variance / numbers.size)
    assert abs((numbers[0] * numbers[1]).mean()) < 5 / np.sqrt(numbers.shape[1])
    np.testing.assert_array_equal(HostNoise(3).normal(7, (2, 500_000)), numbers.astype(np.float32))
    assert not (HostNoise(3).normal(8, (1000,)) == numbers[0, :1000].astype(np.float32)).any()


def test_normal_numbers_are_pinned_to_their_own_uniform_stream():
    """Independent of the numbers of `uniform`: a model's choices and a diffusion's noise may share a seed."""
    source = HostNoise(11)
    drawn = source.normal(2, (50,))
    for step in range(3):
        radius, angle = source.uniform(step, (2, 50)).astype(np.float64)
        assert np.abs(drawn - np.sqrt(-2 * np.log(radius)) * np.cos(2 * np.pi * angle)).max() > 0.1
    assert np.round(HostNoise(0).normal(0, (4,)).astype(np.float64), 5).tolist() == PINNED_NORMAL


def test_normal_numbers_are_rounded_once():
    numbers = HostNoise(0)._uniform([0, 0, 1, 7], (2, 1000)).astype(np.float64)
    exact = np.sqrt(-2 * np.log(numbers[0])) * np.cos(2 * np.pi * numbers[1])
    np.testing.assert_array_equal(HostNoise(0).normal(7, (1000,)), exact.astype(np.float32))

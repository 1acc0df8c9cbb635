"""Windows of several pieces in one call of Vocos: which share one, and in which order."""

import pytest

from tests.tiny.networks import vocos_config
from tts_core.codecs.policy import CodecPolicy
from tts_core.codecs.vocos import decode_lookahead, decode_window
from tts_core.codecs.vocos_calls import calls, most_fed
from tts_core.memory.machine import BACKENDS

TINY = vocos_config()
POLICY = CodecPolicy(max_frames=32, first_frames=8)
FRAMES = [100, 40, 0, 100, 7, 57]


@pytest.mark.parametrize("most", [0, 40, 70, 10**6])
def test_every_window_runs_once_in_its_piece_s_order(most: int) -> None:
    found: dict[int, list[tuple[int, int]]] = {place: [] for place in range(len(FRAMES))}
    for call in calls(TINY, FRAMES, POLICY.decode_cuts, most=most):
        windows = {decode_window(TINY, call.start, call.stop, FRAMES[place]) for place in call.rows}
        [window] = windows
        assert window.last == call.last
        assert len(call.rows) == 1 or len(call.rows) * (window.last - window.first) <= most
        for place in call.rows:
            found[place].append((call.start, call.stop))
    assert found == {place: [*POLICY.decode_cuts(frames)] for place, frames in enumerate(FRAMES)}


def test_pieces_share_the_windows_before_their_ends() -> None:
    made = [*calls(TINY, FRAMES, POLICY.decode_cuts, most=10**6)]
    assert made[1].rows == (0, 1, 3, 5)
    assert len(made) <= sum(len([*POLICY.decode_cuts(frames)]) for frames in FRAMES) / 2


def test_a_cpu_runs_them_one_by_one() -> None:
    found = {backend: most_fed(TINY, 32, backend=backend) for backend in BACKENDS}
    assert {name for name, most in found.items() if not most} == {"torch-cpu", "mlx-cpu"}
    assert {*found.values()} == {0, 32 + 2 * decode_lookahead(TINY)}

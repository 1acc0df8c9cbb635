"""The plain slots' keys and values grow with the texts, and are freed after them."""

import pytest

from tests.parity.mars5.test_slots import CONFIG, NARROW, ROOM, alone, come_and_go, network, slots_of, text
from tests.sides import BY_PACKAGE
from tests.tiny.mars5_ar import VOCABULARY
from torch_ref import batch
from torch_ref.mars5.decoder import make_slots
from tts_core.mars5.config import CodecLMConfig

TORCH = BY_PACKAGE["torch_ref"]


@pytest.mark.parametrize("config", [CONFIG, NARROW], ids=["window 3000", "window 54"])
@pytest.mark.parametrize("count", [1, 3])
def test_keys_grow(count: int, config: CodecLMConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a few at a time, in the middle of texts; each draws its ids."""
    monkeypatch.setattr(batch, "CHUNK", 5)
    shared, sizes = slots_of(TORCH, config, count), set[int]()
    reserve = shared._reserve

    def watched(positions: int) -> None:
        reserve(positions)
        sizes.add(shared.caches[0].keys.shape[2])

    monkeypatch.setattr(shared, "_reserve", watched)
    ended = come_and_go(shared, [text(seed) for seed in range(12)], seed=count)
    assert len(ended) > 6
    for one in ended:
        assert one.drawn[: one.limit] == alone(TORCH, config, one.seed)
    assert len(sizes) > 5
    assert max(sizes) <= min(ROOM, config.sliding_window)
    assert shared.caches == []


def test_a_short_text_takes_little() -> None:
    ids = {"lowest": VOCABULARY.lowest, "end": VOCABULARY.end}
    shared = make_slots(network(TORCH, CONFIG), texts=2, room=2000, **ids)
    shared.join({1: text(4).joining})
    assert shared.caches[0].keys.shape[2] == batch.CHUNK

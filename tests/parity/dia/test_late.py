"""When a batch that nobody hears before its end decodes on a device without a second stream."""

from typing import Any

import pytest

from tests.sides import BY_PACKAGE
from tests.tiny.dia import compose
from tests.tiny.networks import dia_config, tiny

SHORT, LONG = "[S1] A mine.", "[S1] An old inn, near the pine. [S2] There it ends!"


@pytest.mark.parametrize("side", list(BY_PACKAGE))
@pytest.mark.parametrize(
    ("texts", "before"),
    [
        pytest.param([SHORT, LONG], False, id="texts of one piece"),
        pytest.param([SHORT, "[S1] An inn. [pause:0.2] [S2] There it ends!"], True, id="a text in pieces"),
    ],
)
def test_texts_that_begin_together_are_decoded_after_the_last_step(
    side: str, texts: list[str], before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces that follow others do not wait for the longest text."""
    voice: Any = compose(BY_PACKAGE[side], tiny(dia_config(positions=400), seed=3, eos=0.0), tiny("dac"))
    engine, events, opened = voice.engine, list[str](), list[Any]()
    slots, decode = engine.slots, engine.decode

    def watched(*args: Any, **kwargs: Any) -> Any:
        opened.append(slots(*args, **kwargs))
        launch = opened[-1].launch
        monkeypatch.setattr(opened[-1], "launch", lambda steps: [events.append("step"), launch(steps)][1])
        return opened[-1]

    monkeypatch.setattr(engine, "slots", watched)
    monkeypatch.setattr(engine, "decode", lambda *windows: [events.append("decode"), decode(*windows)][1])
    made = voice.generate_batch(texts, seed=1, max_frames=[9, 30])
    assert made[0].codes.shape[1] < made[1].codes.shape[1]
    assert ("step" in events[events.index("decode") :]) == (before or engine.host.overlaps)

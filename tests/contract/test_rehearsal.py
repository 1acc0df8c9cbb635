"""What a rehearsal measures replaces the stated bytes of the codec's largest window in later plans."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.contract.speakers import every_model, every_side, speaker

pytestmark = pytest.mark.rest


@every_model
@every_side
def test_a_rehearsal_measures_the_largest_window(
    model: str, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = speaker(model, side)
    net, session = pipeline.engine, pipeline.session(2)
    monkeypatch.setattr(net.host, "measured", 1.0)  # as it is again after this test
    session.prepare()
    if side == "torch" or session.policy is None:
        assert net.host.measured == 1.0, "no peak of its own, or no windows"
        session.close()
        return
    job = replace(net.plan.longest(net.configs, None, None), frames=session.policy.max_frames)
    machine = net.host.machine(session.policy)
    assert machine.measured == net.host.measured != 1.0
    stated = net.plan.footprint(net.configs, job, replace(machine, measured=1.0))
    taken = machine.measured * stated.sound
    assert 4 * max(1, session.policy.max_frames) < taken, "more than the samples of the window"
    planned = net.plan.footprint(net.configs, job, machine)
    assert planned.running >= planned.row + int(taken)
    session.close()


@every_side
def test_a_running_batch_is_prepared(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    session, calls = speaker("qwen3", side).session(2), list[str]()
    monkeypatch.setattr(session.slots.batch, "prepare", lambda: calls.append("prepared"))
    session.prepare()
    session.close()
    assert calls == ["prepared"]

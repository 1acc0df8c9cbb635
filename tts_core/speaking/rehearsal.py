"""The codec's largest window, decoded once: its peak replaces the stated one in a host's memory plans."""

from __future__ import annotations

from dataclasses import replace

from tts_core.codecs.policy import CodecPolicy
from tts_core.speaking.net import Net


def measure_window(net: Net, policy: CodecPolicy) -> None:
    """Decode the largest window of a policy. Where a host has no peak of its own, the stated one counts."""
    host, most = net.host, policy.max_frames
    if host.used_bytes() is None:
        return
    net.decode([net.silence(1)], policy, lambda: None)  # weights are there
    job = replace(net.plan.longest(net.configs, None, None), frames=most)
    stated = net.plan.footprint(net.configs, job, replace(host.machine(policy), measured=1.0)).sound
    before = host.used_bytes() or 0
    host.reset_peak()
    net.decode([net.silence(most)], policy, lambda: None)
    host.measured = (host.peak_bytes() - before) / stated

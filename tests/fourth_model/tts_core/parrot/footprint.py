"""Memory that Parrot takes on a backend, in bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tts_core.codecs.dac import DacConfig
from tts_core.config import Configs, config_of
from tts_core.memory.fits import Plan
from tts_core.memory.footprint import Footprint, footprint
from tts_core.memory.machine import Machine
from tts_core.memory.weights import held
from tts_core.parrot.model import ParrotConfig
from tts_core.text.breaks import Paused


@dataclass(frozen=True)
class ParrotJob:
    """The longest speech: frames of a word."""

    frames: int
    batch: int = 1


def parrot_footprint(configs: Configs, job: ParrotJob, machine: Machine) -> Footprint:
    """The network's features, then one word's sound."""
    config, codec = config_of(configs, "parrot", ParrotConfig), config_of(configs, "dac", DacConfig)
    rows, wave = machine.size * job.frames * config.width, machine.wide * job.frames * codec.hop_length
    weights = held(configs, ("parrot", "dac"), machine)
    return footprint(machine, weights=weights, row=0, stages=(rows, wave), minute=0, sound=wave)


def longest(configs: Configs, text: Paused | None, seconds: float | None) -> ParrotJob:
    """A word."""
    return ParrotJob(12 if seconds is None else math.ceil(seconds * frame_rate(configs)))


def frame_rate(configs: Configs) -> float:
    """Of the codec, in Hz."""
    return config_of(configs, "dac", DacConfig).frame_rate


PLAN = Plan(parrot_footprint, longest, frame_rate, fixed=())

"""Requests of many kinds for a small Dia, and a session that they join while others come and go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.tiny.recordings import snippet
from tts_core.codecs.dac_calls import Passage
from tts_core.dia.options import DiaOptions
from tts_core.results import GenerationResult, merge
from tts_core.serving.session import Part
from tts_core.speaking.speech import CodecMemory, Sound

WORDS = ("inn", "near", "then", "thin", "out", "pine", "hide", "an", "old", "tin", "mine")


def requests(pipeline: Any) -> list[Any]:
    """Short and long texts, in pieces and with pauses, with and without a voice, of several settings."""
    random, found = np.random.default_rng(7), []
    hop = pipeline.codec_config.hop_length
    for place in range(18):
        words = " ".join(random.choice(WORDS, int(random.integers(2, 9))))
        text = f"[S1] {words}."
        changes: dict[str, Any] = {"max_frames": int(random.integers(12, 60))}
        voice = None
        if place % 4 == 1:
            audio = random.normal(scale=0.1, size=9 * hop).astype(np.float32)
            voice = snippet(audio, "[S1] An inn.")
        if place % 6 == 2:
            text, changes = f"{text} [pause:0.05] [S2] {words}!", {}
        if place % 5 == 3:
            changes |= {"temperature": 0.7, "cfg_scale": 1.5, "top_k": 9, "top_p": 1.0}
        if place % 8 == 7:
            changes |= {"cfg_scale": 0.0, "temperature": 0.0}
        found.append(pipeline.request(text, DiaOptions(seed=place, **changes), voice))
    return found


def served(pipeline: Any, asked: list[Any], *, places: int, seed: int, **how: Any) -> list[GenerationResult]:
    """Speak requests that arrive at random moments; some others come along and leave again, unfinished.

    how: arguments of the session.
    """
    random, session = np.random.default_rng(seed), pipeline.session(places, **how)
    waiting, keys, strangers = list(range(len(asked))), {}, set()
    parts: dict[int, list[GenerationResult]] = {place: [] for place in waiting}
    while waiting or session.running:
        for stranger in [key for key in strangers if random.random() < 0.1]:
            session.leave(stranger)
            strangers.discard(stranger)
        if random.random() < 0.2 and session.fits(asked[0]):
            strangers.add(session.join(asked[int(random.integers(len(asked)))]))
        while waiting and random.random() < 0.5 and session.fits(asked[waiting[0]]):
            place = waiting.pop(0)
            keys[session.join(asked[place])] = place
        for event in session.step():
            assert isinstance(event, Part), event
            if event.key in keys:
                parts[keys[event.key]].append(event.result)
            elif event.result.is_final_chunk:
                strangers.discard(event.key)
    session.close()
    return [merge(parts[place]) for place in range(len(asked))]


def window(passage: Passage, memory: CodecMemory | None = None) -> Sound:
    """Frames of a text as a speech gives them to its session."""
    return Sound(passage.codes[:, passage.start : passage.stop], 0, memory, source=passage)


def decoded(net: Any, passages: Sequence[Passage]) -> list[np.ndarray]:
    """Decode passages with the networks of a pipeline, in shared calls."""
    return net.launch([window(one) for one in passages], net.policy).take()

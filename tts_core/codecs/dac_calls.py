"""DAC's decode of several texts: passages that feed equally many frames run in one call.

A passage's samples depend only on its own frames: calls are cut by length, nothing is padded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tts_core.codecs.dac import DacConfig, decode_window, decoded_length
from tts_core.codecs.policy import ONE_BY_ONE, CodecPolicy
from tts_core.nn.beside import Pending, Then
from tts_core.nn.guard import check_sound
from tts_core.nn.windows import Window, in_powers


class Passage(NamedTuple):
    """Frames [start, stop) of one text's codes.

    codes: (Q, T) int32, up to the end, or at least `tts_core.codecs.dac.decode_lookahead` frames past `stop`.
    """

    codes: np.ndarray
    start: int
    stop: int


@dataclass(frozen=True)
class DacCall:
    """Input of one decode.

    codes: (B, Q, F).
    rows: of the passages.
    own: samples of each row.
    """

    codes: np.ndarray
    rows: tuple[int, ...]
    own: tuple[slice, ...]


def calls(config: DacConfig, passages: Sequence[Passage], *, most: int) -> Iterator[DacCall]:
    """Group passages into calls that feed at most `most` frames, or one passage.

    A call has one, two, four and so on, each of an `even` number of frames where more context is there: few
    shapes, each of which is captured or compiled by itself. The longest come first: what they needed has room
    for the others, while lengths that grow would leave one hole after the other in the memory of a CPU.
    """
    windows = [_fed_window(config, passage, most) for passage in passages]
    alike: dict[tuple[int, int], list[int]] = {}
    for index, window in enumerate(windows):
        if window.start < window.stop:
            books = passages[index].codes.shape[0]
            alike.setdefault((window.last - window.first, books), []).append(index)
    for (fed, _), indices in sorted(alike.items(), reverse=True):
        for chosen in in_powers(indices, most // fed):
            spans = [slice(windows[index].first, windows[index].last) for index in chosen]
            yield DacCall(
                np.stack([passages[index].codes[:, span] for index, span in zip(chosen, spans, strict=True)]),
                tuple(chosen),
                tuple(_own(config, passages[index], windows[index].first) for index in chosen),
            )


def even(frames: int, most: int) -> int:
    """Round up to a multiple of 8, or to one of four lengths an octave, or to `most` if that is less."""
    step = max(8, (1 << (frames - 1).bit_length()) >> 3)
    return min(-(-frames // step) * step, max(most, frames))


def _fed_window(config: DacConfig, passage: Passage, most: int) -> Window:
    """Find the frames to feed for a passage: those that it needs, and an `even` number with earlier ones."""
    codes, start, stop = passage
    window = decode_window(config, start, stop, codes.shape[1])
    first = window.last - even(window.last - window.first, most)
    return replace(window, first=first) if 0 <= first < window.first else window


def split(config: DacConfig, passages: Sequence[Passage], *, most: int) -> list[Sequence[int]]:
    """Divide passages into the calls of one decode, by their places; those without frames need none."""
    found = [call.rows for call in calls(config, passages, most=most)]
    needed = {index for indices in found for index in indices}
    empty = [index for index in range(len(passages)) if index not in needed]
    return [*found, empty] if empty else [*found]


def launch_passages(
    config: DacConfig,
    passages: Sequence[Passage],
    launch: Callable[[Sequence[np.ndarray]], Pending[Sequence[np.ndarray]]],
    *,
    most: int,
) -> Pending[list[np.ndarray]]:
    """Begin to decode passages to samples, float32 (L,) each, in their order.

    `take` raises GenerationError for a passage whose samples are all zero.

    most: frames to feed in one call, from `most_fed`.
    launch: from the codes of every call, (B, Q, F), to its samples (B, F·hop or fewer).
    """
    needed = list(calls(config, passages, most=most))

    def cut(audio: Sequence[np.ndarray]) -> list[np.ndarray]:
        samples = [np.zeros(0, np.float32) for _ in passages]
        for call, rows in zip(needed, audio, strict=True):
            for row, index, own in zip(rows, call.rows, call.own, strict=True):
                samples[index] = row[own].astype(np.float32)
                check_sound(samples[index])
        return samples

    return Then(launch([call.codes for call in needed]), cut)


def most_fed(config: DacConfig, policy: CodecPolicy, *, backend: str) -> int:
    """Count the frames to feed in one call: those of the policy's largest window, with its context on both
    sides; 0, where every window is a call of its own.
    """
    if backend in ONE_BY_ONE:
        return 0
    window = decode_window(config, policy.max_frames, 2 * policy.max_frames, 3 * policy.max_frames)
    return window.last - window.first


def _own(config: DacConfig, passage: Passage, first: int) -> slice:
    total, hop = passage.codes.shape[1], config.hop_length
    last = decoded_length(config, total) if passage.stop == total else passage.stop * hop
    return slice((passage.start - first) * hop, last - first * hop)

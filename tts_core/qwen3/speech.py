"""The speech of Qwen3-TTS: pieces in order, each read before its frames, or with them.

Source: QwenLM/Qwen3-TTS@022e286, Apache-2.0.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from tts_core.codecs.policy import CodecPolicy, complete
from tts_core.qwen3.layout import Qwen3Inputs
from tts_core.qwen3.live import Live, Whole
from tts_core.qwen3.net import Qwen3Net
from tts_core.qwen3.request import Qwen3Request
from tts_core.speaking.speech import (
    Append,
    CodecMemory,
    Encode,
    Free,
    Ids,
    MoreText,
    Slot,
    Sound,
    Speech,
    clipped,
)
from tts_core.text.duration import warn_of_piece


def speak(request: Qwen3Request, net: Qwen3Net, policy: CodecPolicy | None) -> Speech:
    """Speak the pieces of a request in order; those of a text that goes on as their words come.

    policy: the codec's windows; None decodes each piece as a whole.
    """
    voice = request.voice
    vector, before = voice.vector, None
    if voice.transcript and voice.samples is not None:
        before = yield Encode(partial(net.encode, voice.samples))
    if voice.for_speaker is not None:
        vector = yield Encode(partial(net.vector, voice.for_speaker))
    text = Live(request) if request.is_open else Whole(request)
    spoken, is_cut = 0, False
    while True:
        while not text.can_begin:
            text.feed((yield MoreText()))
        piece = text.begin()
        inputs = Qwen3Inputs(piece.layout, request.sampling, piece.noise, vector, before, more=piece.more)
        slot, memory = Slot(inputs), CodecMemory(before)
        frames, given, ended = list[np.ndarray](), 0, False
        while not ended:
            steps = yield Ids(slot, or_text=text.is_open)
            if steps is None:
                text.feed((yield MoreText()))
                if news := text.news():
                    yield Append(slot, *news)
                continue
            for codes in steps:
                if codes[0] < 0:
                    raise net.fault(replace(inputs, layout=text.piece.layout), _stacked(request, frames))
                if codes[0] == request.facts.config.codec_eos_id:
                    ended = True
                    break
                frames.append(codes)
                if len(frames) >= request.limit(text.piece, spoken):
                    ended = is_cut = True
                    if request.max_frames is None:
                        seconds = len(frames) / request.facts.codec.frame_rate
                        warn_of_piece(
                            text.begun, len(text.pieces), seconds, ", longer than anybody reads it,"
                        )
                    break
            for start, stop in complete(policy, given, len(frames) - ended):
                yield Sound(_stacked(request, frames[start:stop]), 0, memory, after=clipped, lead=text.lead)
                given = stop
        yield Free(slot)
        spoken += len(frames)
        is_full = request.max_frames is not None and spoken >= request.max_frames
        if given < len(frames) and text.is_followed is None and not is_full:  # only further text says
            yield Sound(_stacked(request, frames[given:]), 0, memory, after=clipped, lead=text.lead)
            given = len(frames)
        while text.is_followed is None and not is_full:
            text.feed((yield MoreText()))
        rows = len(piece.layout.text) + len(frames)
        codes = _stacked(request, frames[given:])
        yield Sound(codes, rows, memory, after=clipped, ends=True, pacing=text.pacing(), lead=text.lead)
        if is_full or not text.is_followed:
            return "length" if is_cut or text.is_followed is not False else "stop"


def _stacked(request: Qwen3Request, frames: list[np.ndarray]) -> np.ndarray:
    """Stack frames, (Q,) each. → (Q, F)."""
    return np.array(frames, np.int32).reshape(-1, request.facts.config.n_codebooks).T

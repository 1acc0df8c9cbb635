"""The speech of MetaVoice: pieces in order, each from the first stage through the second to the decoder.

Source: metavoiceio/metavoice-src, July 2024 (Apache-2.0).
"""

from __future__ import annotations

from functools import partial

import numpy as np

from tts_core.audio.loudness import normalize_loudness
from tts_core.codecs.policy import CodecPolicy
from tts_core.metavoice.config import END_OF_AUDIO, FIRST_STAGE_BOOKS
from tts_core.metavoice.inputs import MetaVoiceInputs
from tts_core.metavoice.net import MetaVoiceNet, MetaVoiceSource
from tts_core.metavoice.request import FRAME_RATE, MetaVoiceRequest
from tts_core.speaking.speech import Encode, Free, Ids, Slot, Sound, Speech, Work


def speak(request: MetaVoiceRequest, net: MetaVoiceNet, policy: CodecPolicy | None) -> Speech:
    """Speak the pieces of a request in order, each decoded once all of its codes are known, at -14 LUFS.

    policy: not used; a piece is decoded as a whole.
    """
    vector = yield Encode(partial(request.voice.encoded, net.speaker), "speaker")
    frames, count, is_cut = 0, 0, False  # frames and ids of the pieces so far
    for place, piece in enumerate(request.pieces):
        limit = piece.limit(request.frames(place, frames))
        inputs = MetaVoiceInputs(piece.first, vector, request.sampling, piece.noise)
        slot = Slot(inputs, "first stage", round(FIRST_STAGE_BOOKS * FRAME_RATE * piece.seconds))
        ids = list[int]()
        while len(ids) < limit and ids[-1:] != [END_OF_AUDIO]:
            ids += _heard((yield Ids(slot)).tolist(), limit - len(ids))
            if -1 in ids:
                known = np.array(ids[: ids.index(-1)], np.int32)
                raise net.fault(np.concatenate([piece.first, known]), vector, request.sampling)
        yield Free(slot)
        said = request.said(place, np.concatenate([piece.first, np.array(ids, np.int32)]), frames)
        codes = yield Work(partial(net.fill, piece, said.codes, vector), "second stage")
        frames += codes.shape[1]
        count += said.ids
        is_cut |= not said.ended
        yield Sound(
            codes,
            count,
            source=MetaVoiceSource(request.decoder, piece.noise),
            after=partial(normalize_loudness, sample_rate=net.sample_rate),
            ends=True,
        )
        if frames == request.max_frames and place + 1 < len(request.pieces):
            return "length"
    return "length" if is_cut else "stop"


def _heard(drawn: list[int], most: int) -> list[int]:
    """Keep the ids of some steps, at most so many, up to the end of audio."""
    ids = drawn[:most]
    return ids[: ids.index(END_OF_AUDIO) + 1] if END_OF_AUDIO in ids else ids

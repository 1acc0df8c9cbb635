"""The speech of MetaVoice: pieces, each from the first stage through the second to the decoder.

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
from tts_core.metavoice.request import FRAME_RATE, MetaVoicePiece, MetaVoiceRequest
from tts_core.speaking.speech import Encode, Free, Ids, Slot, Sound, Speech, Work, in_order


def speak(request: MetaVoiceRequest, net: MetaVoiceNet, policy: CodecPolicy | None) -> Speech:
    """Speak the pieces of a request at once; with a limit of their frames one after the other.

    policy: not used; a piece is decoded as a whole.
    """
    vector = yield Encode(partial(request.voice.encoded, net.speaker), "speaker")
    return (yield from in_order(request, lambda piece, left: _speak(request, piece, left, vector, net)))


def _speak(
    request: MetaVoiceRequest, piece: MetaVoicePiece, left: int | None, vector: np.ndarray, net: MetaVoiceNet
) -> Speech:
    """Speak a piece, which is decoded once all of its codes are known, at -14 LUFS. left: frames."""
    limit = piece.limit(piece.most(left))
    inputs = MetaVoiceInputs(piece.first, vector, request.sampling, piece.noise)
    slot = Slot(inputs, "first stage", round(FIRST_STAGE_BOOKS * FRAME_RATE * piece.seconds))
    ids = list[int]()
    while len(ids) < limit and ids[-1:] != [END_OF_AUDIO]:
        ids += _until_end((yield Ids(slot)).tolist(), limit - len(ids))
        if -1 in ids:
            known = np.array(ids[: ids.index(-1)], np.int32)
            raise net.fault(np.concatenate([piece.first, known]), vector, request.sampling)
    yield Free(slot)
    said = piece.said(np.concatenate([piece.first, np.array(ids, np.int32)]), left)
    codes = yield Work(partial(net.fill, piece, said.codes, vector), "second stage")
    source = MetaVoiceSource(request.decoder, piece.noise)
    louder = partial(normalize_loudness, sample_rate=net.sample_rate)
    yield Sound(codes, said.ids, source=source, after=louder, ends=True)
    return "stop" if said.ended else "length"


def _until_end(drawn: list[int], most: int) -> list[int]:
    """Keep the ids of some steps, at most so many, up to the end of audio."""
    ids = drawn[:most]
    return ids[: ids.index(END_OF_AUDIO) + 1] if END_OF_AUDIO in ids else ids

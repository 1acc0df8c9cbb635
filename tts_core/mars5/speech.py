"""The speech of MARS5: pieces, each ids, then a diffusion over its codes, then sound.

Upstream: Camb-ai/MARS5-TTS@84697c8 (AGPL-3.0); written from a description, none of its code was used.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from tts_core.audio.silence import loud_span
from tts_core.codecs.policy import CodecPolicy
from tts_core.mars5.inputs import CodecSequence, Mars5Inputs
from tts_core.mars5.net import Mars5Net
from tts_core.mars5.request import Mars5Piece, Mars5Request
from tts_core.nn.guard import NotFiniteError
from tts_core.speaking.speech import Encode, Free, Ids, Slot, Sound, Speech, Work, in_order
from tts_core.text.duration import warn_of_cut


def speak(request: Mars5Request, net: Mars5Net, policy: CodecPolicy | None) -> Speech:
    """Speak the pieces of a request at once; with a limit of their frames one after the other.

    policy: not used; a piece is decoded as a whole.
    """
    request = yield Encode(partial(request.encoded, net.encode, net.facts.vocabulary), "codec")
    return (yield from in_order(request, lambda piece, left: _speak(request, piece, left, net)))


def _speak(request: Mars5Request, piece: Mars5Piece, left: int | None, net: Mars5Net) -> Speech:
    """Speak a piece, which is decoded once all of its codes are known, and trimmed. left: frames."""
    codes, options, rate = request.voice.codes, request.options, request.frame_rate
    assert codes is not None, "the reference is encoded first"
    most = request.longest(piece) if left is None else left
    limit = None if most is None else request.known + most
    sequence = CodecSequence(piece.prompt, net.facts.vocabulary, options.max_len, limit)
    inputs = Mars5Inputs(piece.prompt, codes, options, piece.noise)
    slot = Slot(inputs, "AR", round(piece.seconds * rate))
    while not sequence.done:
        for drawn in (yield Ids(slot)).tolist():
            if drawn < 0:
                raise NotFiniteError(None, net.host.dtype, text=1, row=len(sequence.generated))
            sequence.accept(drawn)
            if sequence.done:
                break
    yield Free(slot)
    first = sequence.codes()
    new = max(0, len(first) - request.known)
    reason = sequence.finish_reason
    assert reason is not None, "the sequence has ended"
    if reason == "length" and left is None:
        warn_of_cut(new, rate, piece.text)
    drawn_codes = yield Work(
        partial(net.begin, request, piece, first, new), "NAR", request.diffusion.timesteps
    )
    trimmed = partial(_trimmed, limit=options.trim_db)
    new_codes = drawn_codes[:, drawn_codes.shape[1] - new :]
    yield Sound(new_codes, len(sequence.generated), after=trimmed, ends=True)
    return reason


def _trimmed(samples: np.ndarray, *, limit: float) -> np.ndarray:
    """Cut off the silence at both ends, (L,). limit: in dB."""
    start, stop = loud_span(samples, limit)
    return samples[start:stop]

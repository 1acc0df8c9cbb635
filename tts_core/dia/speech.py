"""The speech of Dia: pieces after their anchors, each a grid of delayed rows after the codes of its anchors.

Source: nari-labs/dia model.py@876125e (0626) and @2811af1 (v0.1), Apache-2.0.
"""

from __future__ import annotations

from functools import partial

from tts_core.codecs.dac_calls import Passage
from tts_core.codecs.policy import CodecPolicy, complete
from tts_core.dia.grid import DiaInputs
from tts_core.dia.long_text import DiaPieces
from tts_core.dia.net import DiaNet
from tts_core.dia.request import DiaRequest
from tts_core.dia.text import words_of
from tts_core.speaking.speech import All, Encode, Free, Ids, Slot, Sound, Speech
from tts_core.text.duration import warn_of_cut


def speak(request: DiaRequest, net: DiaNet, policy: CodecPolicy | None) -> Speech:
    """Speak the pieces of a request: after their anchors, all that follow at once.

    policy: the codec's windows; None gives the codes of each piece at once.
    """
    if request.voice is not None:
        request = yield Encode(partial(request.encoded, net.encode))
    text = DiaPieces(request)
    while ready := text.ready():
        yield All([_speak(text, index, net, policy) for index in ready])
    return text.finish_reason


def _speak(text: DiaPieces, index: int, net: DiaNet, policy: CodecPolicy | None) -> Speech:
    """Speak a piece after its reference and anchors."""
    piece, is_long = text.request(index), len(text.whole.pieces) > 1
    grid, given = piece.grid(), 0
    slot = Slot(DiaInputs.of(grid, piece.tokens, piece.sampling, piece.noise[0]))
    sound = partial(Sound, memory=net.memory(policy), in_result=is_long)
    while not grid.done:
        for ids in (yield Ids(slot)):
            if ids.min() < 0:
                raise net.fault(piece, grid)
            grid.accept(ids)
            if grid.done:
                break
        codes, final = grid.codes(), grid.frames - (1 if grid.done else net.lookahead)
        for start, stop in complete(policy, given, final):  # the last window ends the piece
            yield sound(codes[:, start:stop], grid.filled, source=Passage(codes, start, stop))
            given = stop
    yield Free(slot)
    codes = grid.codes()
    ended = text.end(index, codes, grid.finish_reason)
    if piece.own_limits and grid.finish_reason == "length":
        warn_of_cut(piece.limits[0], piece.frame_rate, words_of(piece.tokens))
    source, told = Passage(codes, given, grid.frames), ended if is_long else None
    yield sound(codes[:, given:], grid.filled, source=source, ends=True, piece=told)
    return grid.finish_reason

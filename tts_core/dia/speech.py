"""The speech of Dia: pieces after their anchors, each a grid of delayed rows after the codes of its anchors.

Source: nari-labs/dia model.py@876125e (0626) and @2811af1 (v0.1), Apache-2.0.
"""

from __future__ import annotations

from functools import partial

from tts_core.codecs.dac_calls import Passage
from tts_core.codecs.policy import CodecPolicy, complete
from tts_core.dia.grid import DelayGrid, DiaInputs
from tts_core.dia.long_text import DiaPieces
from tts_core.dia.net import DiaNet
from tts_core.dia.request import DiaRequest
from tts_core.dia.text import words_of
from tts_core.results import SpokenPiece
from tts_core.speaking.speech import All, CodecMemory, Encode, Free, Ids, Slot, Sound, Speech
from tts_core.text.duration import warn_of_cut


def speak(request: DiaRequest, net: DiaNet, policy: CodecPolicy | None) -> Speech:
    """Speak the pieces of a request: after their anchors, all that follow at once.

    policy: the codec's windows; None gives the codes of each piece at once.
    """
    if request.voice is not None:
        request = yield Encode(partial(request.encoded, net.encode))
    text = DiaPieces(request)
    while places := text.ready():
        yield All([_speak(text, place, net, policy) for place in places])
    return text.finish_reason


def _speak(text: DiaPieces, place: int, net: DiaNet, policy: CodecPolicy | None) -> Speech:
    """Speak a piece after its reference and anchors."""
    piece, is_long = text.request(place), len(text.whole.pieces) > 1
    grid, asked, memory = piece.grid(), 0, net.memory(policy)
    slot = Slot(DiaInputs.of(grid, piece.tokens, piece.sampling, piece.noise[0]))
    while not grid.done:
        for ids in (yield Ids(slot)):
            if ids.min() < 0:
                raise net.fault(piece, grid)
            grid.accept(ids)
            if grid.done:
                break
        final = grid.frames - (1 if grid.done else net.lookahead)  # the last window ends the piece
        for start, stop in complete(policy, asked, final):
            yield _sound(grid, start, stop, memory, is_kept=is_long)
            asked = stop
    yield Free(slot)
    ended = text.end(place, grid.codes(), grid.finish_reason)
    if piece.own_limits and grid.finish_reason == "length":
        warn_of_cut(piece.limits[0], piece.frame_rate, words_of(piece.tokens))
    told = ended if is_long else None
    yield _sound(grid, asked, grid.frames, memory, told, is_kept=is_long, ends=True)
    return grid.finish_reason


def _sound(
    grid: DelayGrid,
    start: int,
    stop: int,
    memory: CodecMemory | None,
    piece: SpokenPiece | None = None,
    *,
    is_kept: bool,
    ends: bool = False,
) -> Sound:
    """Cut a window out of a piece. memory, is_kept, piece: as in Sound."""
    codes = grid.codes()
    return Sound(
        codes[:, start:stop],
        grid.filled,
        memory,
        source=Passage(codes, start, stop),
        ends=ends,
        is_kept=is_kept,
        piece=piece,
    )

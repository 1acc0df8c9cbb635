"""The speech of Parrot: each word a piece, timed, of text that may still come."""

from __future__ import annotations

from functools import partial

from tts_core.audio.delivery import Pacing
from tts_core.codecs.policy import CodecPolicy
from tts_core.parrot.net import ParrotNet
from tts_core.parrot.request import ParrotRequest, paced
from tts_core.speaking.speech import MoreText, Sound, Speech, Work
from tts_core.text.captions import Word


def speak(request: ParrotRequest, net: ParrotNet, policy: CodecPolicy | None) -> Speech:
    """Say every word, as soon as it is known whether another follows."""
    text, place, is_open = request.pacing, 0, request.is_open
    seconds = request.options.frames_per_word / request.codec.frame_rate
    while True:
        while is_open and place + 1 >= len(text.texts):
            more = yield MoreText()
            is_open = more is not None
            text = text if more is None else text.followed_by(paced(more, request.options))
        word, silence = text.texts[place], text.silences[place + 1]
        codes = yield Work(partial(net.codes, request.features(word), request.seed))
        own = Pacing((word,), (None, silence), text.speed) if request.is_open else None
        words = [Word(word, 0, seconds)]
        yield Sound(codes, 1, words=words, ends=True, pacing=own, lead=text.silences[0])
        place += 1
        if place == len(text.texts):
            return "stop"

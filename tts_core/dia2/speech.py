"""The speech of Dia2: pieces in order, each a run whose words are taken when the network asks for them.

Source: nari-labs/dia2@8687268, Apache-2.0.
"""

from __future__ import annotations

from functools import partial

from tts_core.audio.delivery import Pacing
from tts_core.codecs.policy import CodecPolicy
from tts_core.dia2.inputs import Dia2Inputs
from tts_core.dia2.net import Dia2Net
from tts_core.dia2.pieces import room, written
from tts_core.dia2.recordings import Prefix
from tts_core.dia2.request import Dia2Request
from tts_core.dia2.run import ArrivingEntries
from tts_core.speaking.speech import (
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


def speak(request: Dia2Request, net: Dia2Net, policy: CodecPolicy | None) -> Speech:
    """Speak the pieces of a request in order; those of a text that goes on as their words come.

    policy: the codec's windows.
    """
    assert policy is not None, "pieces are decoded in windows"
    facts, text = request.facts, None
    if request.is_open:
        text = ArrivingEntries(facts.reader, room(facts.config, request.options.initial_padding))
    prefix: Prefix | None = None
    if request.recordings:
        prefix = yield Encode(partial(request.prefix, net.encode))
    index, left = 0, request.max_frames  # frames for the pieces that follow
    while True:
        run = request.run(index, prefix, left)
        inputs = Dia2Inputs(run, text, request.sampling, request.noise_of(index))
        inputs.supply()
        while run.waits:
            inputs.feed((yield MoreText()))
        inputs.before = run.warm_up()
        inputs.supply()
        if not index:
            run.warn_of_late_words()
        slot, memory, start, told = Slot(inputs), CodecMemory(), 0, 0
        while not run.is_done:
            steps = yield Ids(slot, or_text=text is not None and text.is_open)
            if steps is None:
                inputs.feed((yield MoreText()))
                continue
            for codes in steps:
                if codes.min() < 0:
                    raise inputs.error or net.fault(*run.history())
                run.accept(codes)
            while run.frames > start and (run.is_done or run.frames >= policy.served_stop(start)):
                stop = min(run.frames, policy.served_stop(start))
                words = run.words(facts.codec.frame_rate)[told:]
                words = words[: sum(word.start * facts.codec.frame_rate < stop for word in words)]
                count = run.step - run.start
                yield Sound(run.codes(start, stop), count, memory, after=clipped, words=words)
                start, told = stop, told + len(words)
        yield Free(slot)
        has_more = index + 1 < len(request.pieces) if text is None else text.has_entries
        pacing = None
        if text is not None:
            pacing = Pacing((written(facts.reader, run.own),), (None, None), request.pacing.speed)
        words = run.words(facts.codec.frame_rate)[told:]
        count = run.step - run.start
        yield Sound(run.codes(start, start), count, memory, words=words, ends=True, pacing=pacing)
        if run.finish_reason == "length" or not has_more:
            return run.finish_reason
        if left is not None:
            left -= run.spoken
            if left <= 0:
                return "length"
        prefix = prefix or run.beginning(request.voice_frames)
        index += 1

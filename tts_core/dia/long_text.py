"""A text that Dia speaks in pieces: the pieces that can begin, and those already spoken."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tts_core.audio.delivery import Pacing
from tts_core.dia.pieces import DiaPiece, characters
from tts_core.dia.request import DiaRequest
from tts_core.dia.text import prepare, turns
from tts_core.dia.voice import DiaVoice
from tts_core.prompt import Prompt
from tts_core.results import FinishReason, SpokenPiece

SILENT = np.zeros(0, np.float32)


class DiaPieces:
    """The state of a text whose pieces are requests. whole: with its reference encoded."""

    def __init__(self, whole: DiaRequest):
        self.whole = whole
        self.spoken: dict[int, SpokenPiece] = {}
        self._said: dict[int, tuple[str, Prompt | None, DiaRequest]] = {}

    @property
    def frames(self) -> int:
        """Number of frames generated so far."""
        return sum(request.codes.shape[1] for request in self.spoken.values())

    @property
    def finish_reason(self) -> FinishReason:
        """ "stop" if every piece was spoken and ended by itself, else "length"."""
        whole = len(self.spoken) == len(self.whole.pieces)
        ended = all(request.finish_reason == "stop" for request in self.spoken.values())
        return "stop" if whole and ended else "length"

    def ready(self) -> list[int]:
        """List the next pieces, all of whose anchors are spoken; with a limit on total frames one at a time,
        as each leaves the next its remaining frames, and none once it is reached.
        """
        left = range(len(self.spoken), len(self.whole.pieces))
        if self.whole.max_frames is not None:
            return [*left[:1]] if self.frames < self.whole.max_frames else []
        anchors = [self.whole.pieces[index].anchors for index in left]
        return [index for index, before in zip(left, anchors, strict=True) if self.spoken.keys() >= {*before}]

    def prompt(self, index: int) -> Prompt | None:
        """Build the prompt that a piece continues: the reference and its anchors, without those that are
        empty or too short.
        """
        least = self.whole.shortest_anchor
        known = [anchor for anchor in self.whole.pieces[index].anchors if self._length(anchor) >= least]
        anchors = [self.spoken[anchor] for anchor in known]
        parts = [(request.codes, request.text) for request in anchors if request.codes.shape[1]]
        voice = self.whole.voice
        if voice is not None:
            assert voice.codes is not None
            parts.insert(0, (voice.codes, str(voice.transcript)))
        if not parts:
            return None
        codes, texts = zip(*parts, strict=True)
        return Prompt.of(codes=np.concatenate(codes, axis=1), text=" ".join(texts))

    def _length(self, index: int) -> int:
        return characters(self.whole.pieces[index].spoken)

    def text(self, index: int, prompt: Prompt | None) -> str:
        """Return the text of a piece as it is read after its prompt.

        If the prompt's last speaker continues, the tag is dropped: the networks were trained that way, and
        two turns in a row by one speaker make them change voices.
        """
        text = self.whole.pieces[index].text
        if prompt is None:
            return text
        *_, last = turns(str(prompt.one.text))
        return text.removeprefix(f"[{last.speaker}]").lstrip()

    def request(self, index: int) -> DiaRequest:
        """Build the request of a piece after its reference and anchors, which must be spoken, at speed 1; one
        that is the whole text is the request of it.
        """
        whole = self.whole
        if len(whole.pieces) == 1:
            self._said[index] = whole.pieces[index].text, None, whole
            return whole
        prompt = self.prompt(index)
        text, said = self.text(index, prompt), None if prompt is None else str(prompt.one.text)
        codes = None if prompt is None else prompt.one.codes
        taken = 0 if codes is None else codes.shape[1]
        left = math.inf if whole.max_frames is None else whole.max_frames - self.frames
        read = prepare(text, whole.config.max_text_bytes, transcript=said)
        request = replace(
            whole,
            pieces=(DiaPiece(read, said=text),),
            voice=None if codes is None else DiaVoice(taken, codes=codes, transcript=said),
            limits=(int(min(whole.limits[index], whole.config.max_frames - taken, left)),),
            max_frames=None,
            seeds=[whole.seeds[index]],
            noise=[whole.noise[index]],
            pacing=Pacing((text,), (None, None)),
        )
        self._said[index] = text, prompt, request
        return request

    def end(self, index: int, codes: np.ndarray, reason: FinishReason) -> SpokenPiece:
        """Store a piece whose request was spoken, without its sound. codes: (Q, T)."""
        text, prompt, request = self._said.pop(index)
        self.spoken[index] = SpokenPiece(
            text=text,
            prompt=prompt,
            seed=self.whole.seeds[index],
            max_frames=request.limits[0],
            codes=codes,
            audio=SILENT,
            finish_reason=reason,
        )
        return self.spoken[index]

"""State of a long text that Dia speaks in pieces: the pieces ready to run, and those already spoken."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from tts_core.dia.grid import DelayGrid
from tts_core.dia.pieces import characters
from tts_core.dia.request import Batch, Request
from tts_core.dia.text import prepare, tokenize, turns
from tts_core.dia.voice import Voice
from tts_core.prompt import Prompt
from tts_core.results import GenerationResult, SpokenPiece

SIDE_BY_SIDE = 8  # pieces at most: a batch runs as long as its longest piece


class Script:
    """The state of a long text. `batch` builds the run of some pieces, `add` stores its results."""

    def __init__(self, request: Request):
        """request: with its reference encoded."""
        self.request = request
        self.spoken: dict[int, SpokenPiece] = {}
        self.token_count = 0

    def waves(self) -> list[np.ndarray]:
        """Return the waveform of each piece, in order, (L,) float32."""
        return [self.spoken[place].audio for place in sorted(self.spoken)]

    def codes(self) -> np.ndarray:
        """Return the codes of all pieces, in order, (Q, T) int32."""
        return np.concatenate([self.spoken[place].codes for place in sorted(self.spoken)], axis=1)

    @property
    def frames(self) -> int:
        """Number of frames generated so far."""
        return sum(piece.codes.shape[1] for piece in self.spoken.values())

    @property
    def done(self) -> bool:
        """True once every piece is spoken or max_frames are reached."""
        return len(self.spoken) == len(self.request.pieces) or self.frames == self.request.max_frames

    @property
    def finish_reason(self) -> Literal["stop", "length"]:
        """ "stop" if every piece was spoken and ended by itself, else "length"."""
        whole = len(self.spoken) == len(self.request.pieces)
        ended = all(one.finish_reason == "stop" for one in self.spoken.values())
        return "stop" if whole and ended else "length"

    def groups(self, side_by_side: int) -> Iterator[list[int]]:
        """Yield groups of at most `side_by_side` pieces whose anchors are all spoken, until the text is done.

        With a limit on total frames, pieces run one at a time: each leaves the next its remaining frames.
        """
        most = side_by_side if self.request.max_frames is None else 1
        pieces = self.request.pieces
        while not self.done:
            left = [place for place in range(len(pieces)) if place not in self.spoken]
            yield [place for place in left if self.spoken.keys() >= {*pieces[place].anchors}][:most]

    def prompt(self, place: int) -> Prompt | None:
        """Build the prompt that a piece continues: the reference and its anchors, without those that are
        empty or too short.
        """
        least = self.request.shortest_anchor
        known = [anchor for anchor in self.request.pieces[place].anchors if self._length(anchor) >= least]
        anchors = [self.spoken[anchor] for anchor in known]
        parts = [(one.codes, one.text) for one in anchors if one.codes.shape[1]]
        voice = self.request.voice
        if voice is not None:
            assert voice.codes is not None
            parts.insert(0, (voice.codes, str(voice.transcript)))
        if not parts:
            return None
        codes, texts = zip(*parts, strict=True)
        return Prompt.of(codes=np.concatenate(codes, axis=1), text=" ".join(texts))

    def _length(self, place: int) -> int:
        return characters(self.request.pieces[place].spoken)

    def text(self, place: int, prompt: Prompt | None) -> str:
        """Return the text of a piece as it is read after its prompt.

        If the prompt's last speaker continues, the tag is dropped: the networks were trained that way, and
        two turns in a row by one speaker make them change voices.
        """
        text = self.request.pieces[place].text
        if prompt is None:
            return text
        *_, last = turns(str(prompt.one.text))
        return text.removeprefix(f"[{last.speaker}]").lstrip()

    def batch(self, places: Sequence[int]) -> Batch:
        """Build the run of these pieces; their anchors must all be spoken."""
        request, tokens, voices, limits = self.request, [], [], []
        left = math.inf if request.max_frames is None else request.max_frames - self.frames
        for place in places:
            prompt, most = self.prompt(place), request.config.max_text_bytes
            said = None if prompt is None else prompt.one.text
            tokens.append(tokenize(prepare(self.text(place, prompt), most, transcript=said)))
            codes = None if prompt is None else prompt.one.codes
            voices.append(None if codes is None else Voice(codes.shape[1], codes=codes, transcript=said))
            taken = 0 if codes is None else codes.shape[1]
            limits.append(int(min(request.limits[place], request.config.max_frames - taken, left)))
        return Batch(
            tokens,
            voices,
            limits,
            [None] * len(places),
            [request.noise[place] for place in places],
            request.sampling,
            request.last_channel_free,
            own_limits=request.own_limits,
        )

    def add(self, place: int, batch: Batch, grid: DelayGrid, item: int, audio: np.ndarray) -> None:
        """Store a spoken piece from its finished grid. audio: (L,), its whole waveform."""
        prompt = self.prompt(place)
        self.spoken[place] = SpokenPiece(
            text=self.text(place, prompt),
            prompt=prompt,
            seed=self.request.seeds[place],
            max_frames=batch.max_frames[item],
            codes=grid.codes(item),
            audio=audio,
            finish_reason=grid.finish_reason(item),
        )
        self.token_count += grid.filled

    def part(self, result: GenerationResult, *, ended: Sequence[int], rows: int = 0) -> GenerationResult:
        """Add the facts of the whole text to a part. ended: pieces that ended with it.  rows: decoder rows of
        the unfinished piece.
        """
        return replace(
            result,
            seed=self.request.seeds[0],
            finish_reason=self.finish_reason if result.is_final_chunk else None,
            token_count=self.token_count + rows,
            pieces=tuple(self.spoken[place] for place in ended),
        )

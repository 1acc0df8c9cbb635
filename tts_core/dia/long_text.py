"""A long text while Dia speaks it piece by piece: which pieces can run, and what has been spoken."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from tts_core.dia.grid import DelayGrid
from tts_core.dia.request import Batch, Request, Voice
from tts_core.dia.text import prepare, tokenize, turns
from tts_core.prompt import Prompt
from tts_core.results import GenerationResult, SpokenPiece

SIDE_BY_SIDE = 8  # pieces at most: a batch runs as long as its longest piece


class Script:
    """The state of a long text. `batch` builds the run of some pieces, `add` keeps what came of it."""

    def __init__(self, request: Request):
        """request: its reference encoded."""
        self.request = request
        self.spoken: dict[int, SpokenPiece] = {}
        self.token_count = 0

    def waves(self) -> list[np.ndarray]:
        """The sound of each piece, in order, (L,) float32."""
        return [self.spoken[place].audio for place in sorted(self.spoken)]

    def codes(self) -> np.ndarray:
        """(Q, T) int32 of all pieces, in order."""
        return np.concatenate([self.spoken[place].codes for place in sorted(self.spoken)], axis=1)

    @property
    def frames(self) -> int:
        """Frames made so far."""
        return sum(piece.codes.shape[1] for piece in self.spoken.values())

    @property
    def done(self) -> bool:
        """Whether every piece is spoken or max_frames are made."""
        return len(self.spoken) == len(self.request.pieces) or self.frames == self.request.max_frames

    @property
    def finish_reason(self) -> Literal["stop", "length"]:
        """ "stop" where every piece was spoken and ended by itself."""
        whole = len(self.spoken) == len(self.request.pieces)
        ended = all(one.finish_reason == "stop" for one in self.spoken.values())
        return "stop" if whole and ended else "length"

    def groups(self, side_by_side: int) -> Iterator[list[int]]:
        """Pieces whose anchors are all spoken, `side_by_side` of them at most, until the text is done.

        With a limit of all frames together each runs by itself: the one before decides how far the next goes.
        """
        most = side_by_side if self.request.max_frames is None else 1
        pieces = self.request.pieces
        while not self.done:
            left = [place for place in range(len(pieces)) if place not in self.spoken]
            yield [place for place in left if self.spoken.keys() >= {*pieces[place].anchors}][:most]

    def prompt(self, place: int) -> Prompt | None:
        """What a piece continues: the reference and its anchors, those without sound left out."""
        anchors = [self.spoken[anchor] for anchor in self.request.pieces[place].anchors]
        parts = [(one.codes, one.text) for one in anchors if one.codes.shape[1]]
        voice = self.request.voice
        if voice is not None:
            assert voice.codes is not None
            parts.insert(0, (voice.codes, str(voice.transcript)))
        if not parts:
            return None
        codes, texts = zip(*parts, strict=True)
        return Prompt.of(codes=np.concatenate(codes, axis=1), text=" ".join(texts))

    def text(self, place: int, prompt: Prompt | None) -> str:
        """The text that is read of a piece after its prompt. The speaker who spoke last continues without a
        tag, as the networks have learned it; two turns in a row make them change voices.
        """
        text = self.request.pieces[place].text
        if prompt is None:
            return text
        *_, last = turns(str(prompt.one.text))
        return text.removeprefix(f"[{last.speaker}]").lstrip()

    def batch(self, places: Sequence[int]) -> Batch:
        """The run of these pieces, whose anchors are all spoken."""
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
        )

    def add(self, place: int, batch: Batch, grid: DelayGrid, item: int, audio: np.ndarray) -> None:
        """Keep what a finished grid contains of a piece. audio: (L,), all of its sound."""
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
        """A part of the speech with what is true of the whole. ended: pieces that ended with it.  rows: of
        the piece under way.
        """
        return replace(
            result,
            seed=self.request.seeds[0],
            finish_reason=self.finish_reason if result.is_final_chunk else None,
            token_count=self.token_count + rows,
            pieces=tuple(self.spoken[place] for place in ended),
        )

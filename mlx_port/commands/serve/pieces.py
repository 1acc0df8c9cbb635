"""Turns of a speech as their pieces end: their words and times, and the request that speaks each again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from mlx_port.commands.serve.choose import has_seed
from mlx_port.commands.serve.fields import SpeechBody, prompt_json
from mlx_port.commands.serve.names import choose_model
from mlx_port.commands.serve.service import Service
from tts_core import models
from tts_core.nn.noise import piece_seed
from tts_core.results import GenerationResult, SpokenPiece
from tts_core.text.captions import Cue, Word

AS_READ = {"as_written": True, "skip_unknown": False, "piece_seconds": 0}  # its text was read before


class SpeechPieces:
    """The pieces of one speech, in order."""

    def __init__(self, service: Service, body: SpeechBody):
        self.body = body
        name = choose_model(body.model, service.names)
        self.spec = models.MODELS[service.engine.models[name].model]
        self._has_voice = bool(body.prompt or body.ref_audio) or body.voice in service.voices.names()
        self._request = {"model": name, "voice": body.voice, **body.rest}
        if body.prompt is not None:
            self._request["prompt"] = body.prompt.model_dump()
        self._codes: list[np.ndarray] = []  # of a text that is one piece
        self._first = self._count = 0  # of the pieces that end next, of the events

    def ended(self, part: GenerationResult) -> Iterator[dict[str, Any]]:
        """Describe the turns of the pieces that ended in a part, those without sound left out.

        Times in seconds of the whole sound. again: the body of a request that speaks the turn by itself,
        None where only the whole text keeps its voice.
        """
        first, self._first = self._first, self._first + len(part.pieces)
        self._codes.append(part.codes)
        turns = [list(own) for _, own in groupby(part.cues, key=lambda cue: cue.piece)]
        is_whole = not self._count and len(part.cues) == 1 and part.is_final_chunk
        for own in turns:
            piece = part.pieces[own[0].piece - first] if part.pieces else None
            for cue in own:
                again = self._whole(part) if is_whole else self._again(own, cue, piece, part)
                if again is not None and "prompt" in again:  # it stands in place of the recording
                    again = {name: again[name] for name in again if name not in ("ref_audio", "ref_text")}
                words = {"words": [timed(word) for word in cue.timed()]} if cue.words else {}
                times = {"start": cue.start, "end": cue.end}
                yield {"index": self._count, "text": cue.text, **times, **words, "again": again}
                self._count += 1

    def _whole(self, part: GenerationResult) -> dict[str, Any]:
        """The request of a text that is one piece of one turn."""
        seed = {"seed": part.seed} if has_seed(self.spec.name) else {}
        return {**self._request, "input": self.body.input, **seed}

    def _again(
        self, turns: Sequence[Cue], cue: Cue, piece: SpokenPiece | None, part: GenerationResult
    ) -> dict[str, Any] | None:
        """The request of a turn. turns: of its piece."""
        if piece is not None and len(turns) == 1:
            return {**self._request, **continued(piece)}
        if len(turns) > 1 and self.spec.references == 1:  # one recording has all speakers
            codes = np.concatenate(self._codes, axis=1) if piece is None else piece.codes
            seed = part.seed if piece is None else piece.seed
            return {**self._request, **one_turn(codes, [turn.text for turn in turns], cue.text), "seed": seed}
        if not (self._has_voice or self.spec.needs_voice) or part.seed is None:
            return None
        return {**self._request, "input": cue.text, "seed": piece_seed(part.seed, cue.piece)}


def continued(piece: SpokenPiece) -> dict[str, Any]:
    """The fields of a request that speaks a piece after its prompt, as it was read.

    The first piece of a text without a voice has no prompt, and is the voice of those after it: it continues
    itself.
    """
    if piece.prompt is None:
        prompt = prompt_json(piece.codes, piece.text)
    else:
        reference = piece.prompt.one
        assert reference.codes is not None
        prompt = prompt_json(reference.codes, str(reference.text))
    return {"input": piece.text, "seed": piece.seed, "prompt": prompt, **AS_READ}


def one_turn(codes: np.ndarray, turns: Sequence[str], turn: str) -> dict[str, Any]:
    """The fields of a request that speaks a turn after the piece that it is in, where its speaker is heard.

    codes: of the piece, (Q, T).  A tag of the speaker who spoke last is left out: two turns in a row by one
    speaker make the network change voices.
    """
    last = turns[-1].partition(" ")[0]
    return {
        "input": turn.removeprefix(last).lstrip(),
        "prompt": prompt_json(codes, " ".join(turns)),
        **AS_READ,
    }


def timed(word: Word) -> dict[str, Any]:
    """A word and its times, in seconds."""
    return {"text": word.text, "start": word.start, "end": word.end}

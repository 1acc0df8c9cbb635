"""Pieces of a speech as they end: their words and times, and the request that speaks each again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mlx_port.commands.serve.body import Asked, has_seed
from mlx_port.commands.serve.names import choose_model
from mlx_port.commands.serve.prompts import prompt_json
from mlx_port.commands.serve.service import Service
from tts_core import models
from tts_core.nn.noise import piece_seed
from tts_core.results import GenerationResult, SpokenPiece
from tts_core.text.captions import Cue, Word


class Pieces:
    """The pieces of one speech, in order."""

    def __init__(self, service: Service, asked: Asked):
        self.asked = asked
        name = choose_model(asked.model, service.names)
        self.spec = models.model(service.engine.models[name].model)
        self._has_voice = asked.prompt is not None or asked.voice in service.voices.names()
        self._request = {"model": name, "voice": asked.voice, **asked.rest}
        if asked.prompt is not None:
            reference = asked.prompt.one
            assert reference.codes is not None
            assert reference.text is not None
            self._request["prompt"] = prompt_json(reference.codes, reference.text)
        self._place = 0

    def ended(self, part: GenerationResult) -> Iterator[dict[str, Any]]:
        """Describe the pieces that ended in a part, those without sound left out.

        Times in seconds of the whole sound. again: the body of a request that speaks the piece by itself,
        None where only the whole text keeps its voice.
        """
        is_whole = self._place == 0 and part.is_final_chunk
        spoken = part.pieces or (None,) * len(part.cues)
        cues = list(part.cues)
        for piece in spoken:
            place, self._place = self._place, self._place + 1
            if piece is not None and not piece.audio.size:
                continue
            cue = cues.pop(0)
            again = self._whole(part) if is_whole else self._again(place, cue, piece, part)
            words = {"words": [timed(word) for word in cue.timed()]} if cue.words else {}
            yield {
                "index": place,
                "text": cue.text,
                "start": cue.start,
                "end": cue.end,
                **words,
                "again": again,
            }

    def _whole(self, part: GenerationResult) -> dict[str, Any]:
        """The request of a text that is one piece."""
        seed = {"seed": part.seed} if has_seed(self.spec.name) else {}
        return {**self._request, "input": self.asked.text, **seed}

    def _again(
        self, place: int, cue: Cue, piece: SpokenPiece | None, part: GenerationResult
    ) -> dict[str, Any] | None:
        if piece is not None:
            return {**self._request, **continued(piece)}
        if not (self._has_voice or self.spec.needs_voice) or part.seed is None:
            return None
        return {**self._request, "input": cue.text, "seed": piece_seed(part.seed, place)}


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
    read = {"as_written": True, "skip_unknown": False, "piece_seconds": 0}
    return {"input": piece.text, "seed": piece.seed, "prompt": prompt, **read}


def timed(word: Word) -> dict[str, Any]:
    """A word and its times, in seconds."""
    return {"text": word.text, "start": word.start, "end": word.end}

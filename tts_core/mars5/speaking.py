"""One request while it is spoken.

A piece: ids of the autoregressive network, codes of the diffusion, sound of the vocoder, trimmed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tts_core.audio.silence import loud_span
from tts_core.mars5.diffusion import first_noise, make_cells
from tts_core.mars5.engine import DiffusionRun, Mars5Engine
from tts_core.mars5.request import BANDWIDTH_ID, Mars5Piece, Mars5Request, for_vocoder
from tts_core.mars5.sequence import CodecSequence
from tts_core.nn.beside import Pending, Then
from tts_core.nn.guard import check_sound
from tts_core.results import Meter
from tts_core.speech.speaking import Speaking
from tts_core.text.duration import warn_of_cut


class Mars5Speaking(Speaking[Mars5Request, Mars5Piece]):
    """A request, its reference encoded, and its progress."""

    def __init__(self, request: Mars5Request, meter: Meter, engine: Mars5Engine):
        super().__init__(request, meter)
        self.engine = engine
        # a deep clone's codes begin with most of the reference's; frames past its length are new
        self._known = request.voice.frames if request.deep else 0

    def sequence(self) -> CodecSequence:
        """Start the ids of the piece under way."""
        request, most = self.request, self.request.max_frames
        limit = request.longest(self.piece) if most is None else most - self.frames
        codes = None if limit is None else self._known + limit
        return CodecSequence(self.piece.prompt, self.engine.vocabulary, request.options.max_len, codes)

    def hear(self, sequence: CodecSequence) -> None:
        """Take the ids of the piece; a warning is logged if it was cut off without a caller's limit."""
        self.ids += len(sequence.generated)
        if sequence.finish_reason == "length":
            self.is_cut = True
            if self.request.max_frames is None:
                warn_of_cut(self.new_frames(sequence), self.request.frame_rate, self.piece.text)

    def new_frames(self, sequence: CodecSequence) -> int:
        """Count the frames to draw that are not the reference's."""
        return max(0, len(sequence.codes()) - self._known)

    def begin(self, sequence: CodecSequence) -> DiffusionRun:
        """Begin the piece's diffusion."""
        config, codes, first = self.engine.nar_config, self.request.voice.codes, sequence.codes()
        if not self.new_frames(sequence):
            return Nothing(config.n_output_codebooks)
        assert codes is not None, "the reference is encoded first"
        piece = self.piece
        start = first_noise(piece.noise, config.n_codebooks, len(first), config.n_classes)
        # a deep clone's reference is used twice: as known cells, and again at the start of `first`
        cells = make_cells(first, start, codes if self.request.deep else None, n_classes=config.n_classes)
        text = piece.prompt.tokens[: piece.prompt.text_tokens]
        return self.engine.begin(text, codes, cells, self.request.diffusion, piece.noise)


class Nothing:
    """The diffusion of a piece without new frames."""

    done = True

    def __init__(self, codebooks: int):
        self.codebooks = codebooks

    def result(self) -> np.ndarray:
        """Return no codes, (Q, 0) int32."""
        return np.zeros((self.codebooks, 0), np.int32)


def launch_sounds(
    engine: Mars5Engine, codes: Sequence[np.ndarray], trim_db: Sequence[float]
) -> Pending[list[np.ndarray]]:
    """Begin to decode codes (Q, T) of each piece to samples (L,) float32, without the silence at both ends,
    where the host `overlaps` beside other work.

    `take` raises GenerationError for a piece whose samples are all zero.
    """
    known = engine.vocoder_config
    readable = [for_vocoder(one, known.n_codebooks, known.codebook_size) for one in codes]

    def trimmed(decoded: Sequence[np.ndarray]) -> list[np.ndarray]:
        sounds = []
        for audio, limit in zip(decoded, trim_db, strict=True):
            check_sound(audio)
            start, stop = loud_span(audio, limit)
            sounds.append(audio[start:stop])
        return sounds

    return Then(engine.launch(readable, BANDWIDTH_ID), trimmed)

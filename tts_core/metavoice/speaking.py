"""One request while it is spoken. Sound of a piece: first stage, second stage, decoder, -14 LUFS."""

from __future__ import annotations

import numpy as np

from tts_core.metavoice.request import MetaVoicePiece, MetaVoiceRequest, Said
from tts_core.speech.speaking import Speaking


class MetaVoiceSpeaking(Speaking[MetaVoiceRequest, MetaVoicePiece]):
    """A request and its progress."""

    @property
    def limit(self) -> int:
        """Most ids that the first stage may draw for the piece under way."""
        return self.piece.limit(self.request.frames(self.place, self.frames))

    def hear(self, sequence: np.ndarray) -> Said:
        """Take the first stage's ids of the piece, text included. (N,) int32."""
        said = self.request.said(self.place, sequence, self.frames)
        self.ids += said.ids
        self.is_cut |= not said.ended
        return said

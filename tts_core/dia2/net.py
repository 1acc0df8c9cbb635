"""Dia2's networks: the running batch of both, and the codec of either side.

Source: nari-labs/dia2@8687268, Apache-2.0.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tts_core.codecs.policy import CodecPolicy
from tts_core.dia2.footprint import PLAN, Dia2Job, cached_rows, longest_frames
from tts_core.dia2.recordings import longest_prefix
from tts_core.dia2.request import Dia2Facts
from tts_core.errors import GenerationError
from tts_core.speaking.admission import Admission
from tts_core.speaking.net import StreamNet
from tts_core.speaking.running import RunningBatch


class Dia2Net(StreamNet):
    """Dia2's networks and their codec."""

    kinds, facts_of, plan = ("dia2", "mimi"), Dia2Facts.of, PLAN

    def windows(self, job: Dia2Job | None, *, streamed: bool) -> CodecPolicy:
        return self.streamed() if streamed else self.policy.in_largest()

    def open(
        self, places: int, job: Dia2Job | None, policy: CodecPolicy | None
    ) -> tuple[RunningBatch, Admission]:
        config = self.network.config
        longest = job or Dia2Job(longest_frames(config), longest_prefix(config))
        admission = self.admission(places, lambda texts: replace(longest, batch=texts), policy)
        rows = cached_rows(config, longest)
        return self.slots(admission.places, rows, guided=longest.guided), admission

    def slots(self, texts: int, rows: int, *, guided: bool) -> RunningBatch:
        """Open a running batch for texts that read at most `rows` steps. guided: some may be."""
        return self._make_slots(self.network, texts=texts, capacity=rows, guided=guided)

    def fault(self, tokens: np.ndarray, text: tuple[int, int]) -> GenerationError:
        """Build the error for logits that are not all finite.

        tokens: (T, 2 + Q), all inputs so far.  text: ids of both streams after the last step.
        """
        return self._fault(self.network, self.host.to_device(tokens), text)

    def _codes_of(self, samples: np.ndarray) -> Any:
        return self.codec.encode(samples, self.network.config.n_streams)

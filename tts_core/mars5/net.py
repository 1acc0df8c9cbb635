"""MARS5's networks: autoregressive ids, diffusion, codec and vocoder of either side.

Upstream: Camb-ai/MARS5-TTS@84697c8 (AGPL-3.0); written from a description, none of its code was used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tts_core.codecs.policy import CodecPolicy
from tts_core.codecs.vocos_calls import launch_codes
from tts_core.errors import UsageError
from tts_core.mars5.diffusion import first_noise, make_cells
from tts_core.mars5.footprint import PLAN, Mars5Job
from tts_core.mars5.request import BANDWIDTH_ID, STAGES, Mars5Facts, Mars5Piece, Mars5Request, for_vocoder
from tts_core.memory.fits import together
from tts_core.nn.beside import Pending
from tts_core.speaking.admission import Admission
from tts_core.speaking.net import SIDE_BY_SIDE, Net, at_once
from tts_core.speaking.running import RunningBatch
from tts_core.speaking.speech import Made, Run, Sound


class Mars5Net(Net):
    """MARS5's networks. diffusion: of the transformer, `mars5/reverse.py`."""

    kinds, facts_of = ("mars5", "encodec"), Mars5Facts.of
    stages, plan = STAGES, PLAN

    def __init__(self, networks: Mapping[str, Any], *given: Any, diffusion: Any, **how: Any):
        super().__init__(networks, *given, **how)
        self.diffusion, self.transformer, self.vocoder = diffusion, diffusion.network, networks["vocos"]
        self.nar_config, self.vocoder_config = self.transformer.config, self.vocoder.config

    @property
    def sample_rate(self) -> int:
        return self.vocoder_config.sample_rate

    def _codes_of(self, samples: np.ndarray) -> Any:
        return self.codec.encode(samples, self.nar_config.n_codebooks)

    def check_beside(self, job: Mars5Job) -> None:
        """Raise ResourceError unless a piece's stages fit beside the batch in what is free now."""
        self.plan.check_running(self.configs, job, self.host.machine(), "peak")

    def together(self, requests: Sequence[Mars5Request], most: int | None = None) -> tuple[Mars5Job, int]:
        for request in requests:
            self.check(request.job())
        places = min(sum(map(at_once, requests)), most or max(SIDE_BY_SIDE, len(requests)))
        return replace(together([request.job() for request in requests]), batch=1), places

    def longest(self, first: Mars5Request) -> Mars5Job:
        return Mars5Job(prompt_ids=1, frames=1, max_len=first.options.max_len)

    def open(
        self, places: int, job: Mars5Job | None, policy: CodecPolicy | None
    ) -> tuple[RunningBatch, Admission]:
        longest = job or Mars5Job(prompt_ids=1, frames=1)
        capacity = longest.max_len

        def holds(requests: Sequence[Mars5Request]) -> bool:
            *_, last = requests
            if last.options.max_len > capacity:
                raise UsageError(
                    f"generate_max_len_override: {last.options.max_len} ids; a running batch keeps "
                    f"{capacity} of each request, lower it"
                )
            return True

        admission = self.admission(places, lambda texts: replace(longest, batch=texts), holds=holds)
        return self.slots(admission.places, capacity), admission

    def slots(self, texts: int, capacity: int) -> RunningBatch:
        """Allocate a running batch of the autoregressive network for as many texts of `capacity` ids each."""
        lowest, end = self.facts.vocabulary.lowest, self.facts.vocabulary.end
        return self._make_slots(self.network, texts=texts, capacity=capacity, lowest=lowest, end=end)

    def begin(self, request: Mars5Request, piece: Mars5Piece, first: np.ndarray, new: int) -> Run:
        """Begin a piece's diffusion.

        first: (T,), its first codebook.
        new: frames that are not the reference's.
        Raises ResourceError for too little memory.
        """
        config, codes = self.nar_config, request.voice.codes
        self.check_beside(request.job_of(len(piece.prompt.tokens), new))
        if not new:
            return Made(np.zeros((config.n_output_codebooks, 0), np.int32))
        assert codes is not None, "the reference is encoded first"
        start = first_noise(piece.noise, config.n_codebooks, len(first), config.n_classes)
        # a deep clone's reference is used twice: as known cells, and again at the start of `first`
        cells = make_cells(first, start, codes if request.deep else None, n_classes=config.n_classes)
        text = piece.prompt.tokens[: piece.prompt.text_tokens]
        return self.diffusion.begin(text, codes, cells, request.diffusion, noise=piece.noise)

    def split(self, windows: Sequence[Sound], policy: CodecPolicy | None) -> Iterable[Sequence[int]]:
        return [range(len(windows))]

    def launch(self, windows: Sequence[Sound], policy: CodecPolicy | None) -> Pending[list[np.ndarray]]:
        known, cuts = self.vocoder_config, self.vocoder.policy.even_cuts
        codes = [for_vocoder(window.codes, known.n_codebooks, known.codebook_size) for window in windows]
        return launch_codes(self.vocoder, self.host, codes, cuts, BANDWIDTH_ID)

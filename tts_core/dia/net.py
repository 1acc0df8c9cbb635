"""Dia's networks: the decoder's running batch, and the codec of either side.

Source: nari-labs/dia model.py@876125e (0626) and @2811af1 (v0.1), Apache-2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from tts_core.codecs.dac import DacConfig, check_fits, decode_lookahead
from tts_core.codecs.dac_calls import Passage, launch_passages, most_fed, split
from tts_core.codecs.dac_streams import frames_fed, launch_next, shared_shapes
from tts_core.codecs.memory import codec_policy
from tts_core.codecs.policy import CALL, ROWS, WINDOW, CodecPolicy
from tts_core.dia.config import DiaConfig
from tts_core.dia.footprint import PLAN, DiaJob, grid_rows
from tts_core.dia.grid import DelayGrid
from tts_core.dia.request import DiaFacts, DiaRequest
from tts_core.errors import GenerationError
from tts_core.memory.fits import together
from tts_core.memory.machine import Machine
from tts_core.nn.beside import Pending
from tts_core.speaking.admission import Admission
from tts_core.speaking.net import SIDE_BY_SIDE, Net, in_calls, rehearse
from tts_core.speaking.running import RunningBatch
from tts_core.speaking.speech import CodecMemory, Sound


class DiaNet(Net):
    """A Dia network and its codec, which decodes windows of several texts, or the next frames of several
    streams, in shared calls. The empty text of guidance is encoded once.

    encode_empty: of the network, encodes the empty text.
    decode: of the codec without windows, codes (B, Q, F) on the device → samples (B, L).
    decode_window: as the codec's, where a side has a faster form.
    lookahead: frames after a window that its samples depend on.
    """

    kinds, facts_of, plan = ("dia", "dac"), DiaFacts.of, PLAN
    codec_config: DacConfig
    config: DiaConfig

    def __init__(
        self,
        *given: Any,
        encode_empty: Callable[[], Any],
        decode: Callable[[Any], Any],
        decode_window: Callable[..., tuple[Any, Any]] | None = None,
        **how: Any,
    ):
        super().__init__(*given, **how)
        check_fits(self.codec_config, self.config.decoder_config.num_channels, self.config.eos_token_id)
        self.lookahead = decode_lookahead(self.codec_config)
        self._encode_empty, self._decode = cache(encode_empty), decode
        self._decode_window = decode_window or (lambda *given: self.codec.decode_window(*given))

    @property
    def policy(self) -> CodecPolicy:
        """The codec's windows."""
        return self.codec.policy

    def fit(self, machine: Machine) -> None:
        self.codec.policy = codec_policy(self.codec_config, machine)

    def together(self, requests: Sequence[DiaRequest], most: int | None = None) -> tuple[DiaJob, int]:
        """As of any model; texts of several pieces speak as many of them at once as fit."""
        least = max(1, sum(len(request.pieces) == 1 for request in requests))
        wanted = together([request.job(SIDE_BY_SIDE) for request in requests])
        machine, whole = self.host.machine(self.policy), lambda texts: replace(wanted, batch=texts)
        job = whole(max(self.plan.places(self.configs, whole, wanted.batch, machine), least))
        self.check(job)
        return job, min(most or job.batch, job.batch, sum(len(request.pieces) for request in requests))

    def is_late(self, requests: Sequence[DiaRequest], places: int) -> bool:
        is_whole = all(len(request.pieces) == 1 for request in requests)
        return not self.host.overlaps and is_whole and len(requests) <= places

    def longest(self, first: DiaRequest) -> DiaJob:
        return DiaJob(self.config.max_text_bytes, self.config.max_frames, guided=first.job().guided)

    def windows(self, job: DiaJob | None, *, streamed: bool) -> CodecPolicy:
        """As of any model. A job that is streamed has its session to itself; its windows grow faster."""
        if not streamed:
            return self.policy.in_largest()
        policy = self.policy if job is None else self.policy.alone()
        # captured calls have few lengths, and rows of several streams fill them
        shared = WINDOW if self.host.overlaps else CALL
        return replace(policy, shared=shared) if self.most_fed else policy

    def open(
        self, places: int, job: DiaJob | None, policy: CodecPolicy | None
    ) -> tuple[RunningBatch, Admission]:
        longest = job or DiaJob(self.config.max_text_bytes, self.config.max_frames)
        admission = self.admission(places, lambda texts: replace(longest, batch=texts), policy)
        rows, text_rows = 1 + grid_rows(self.config, longest), longest.text_bytes
        return self.slots(admission.places, rows=rows, text_rows=text_rows, guided=longest.guided), admission

    def slots(self, texts: int, *, rows: int, text_rows: int, guided: bool) -> RunningBatch:
        """Open a running batch for texts of at most `text_rows` bytes and `rows` grid rows.

        guided: some may be.
        """
        empty = self._encode_empty() if guided else None
        return self._make_slots(self.network, empty, texts=texts, capacity=rows, text_rows=text_rows)

    def fault(self, piece: DiaRequest, grid: DelayGrid) -> GenerationError:
        """Build the error for logits of a request with one piece that are not all finite. grid: its rows so
        far.
        """
        tokens, rows = self.host.to_device(piece.tokens), self.host.to_device(grid.rows[None, : grid.filled])
        return self._fault(self.network, tokens, rows, guided=piece.sampling.cfg_scale != 0, text=1)

    def prepare(self, policy: CodecPolicy, places: int) -> None:
        if self.host.overlaps and policy.is_streamed and policy.shared is not None:
            shapes = shared_shapes(self.codec_config, policy, places)
            rehearse(self.host, self._decode_window, self.codec_config.n_codebooks, shapes)

    def split(self, windows: Sequence[Sound], policy: CodecPolicy | None) -> Iterable[Sequence[int]]:
        """Divide windows by their length; speech that nobody hears is divided by `decode` itself."""
        if windows and windows[0].memory is not None:
            return in_calls(windows, self._fed, lambda window: self.most_rows(window, policy))
        if not self.host.overlaps:
            return [range(len(windows))]
        return split(self.codec_config, _passages(windows), most=self.most_fed)

    def silence(self, frames: int) -> Sound:
        window = super().silence(frames)
        return replace(window, source=Passage(window.codes, 0, frames))

    def most_rows(self, window: Sound, policy: CodecPolicy | None) -> int:
        fed = self._fed(window)
        return max(1, min(ROWS, min(CALL, self.most_fed) // fed)) if fed else 1

    def _fed(self, window: Sound) -> int:
        """Count the frames that the next window of a stream feeds; 0 for one without a stream, as one that is
        the whole piece and needs no delay.
        """
        passage, memory = window.source, window.memory
        if memory is None or (memory.state is None and passage.stop == passage.codes.shape[1]):
            return 0
        is_captured = self.host.overlaps and self.most_fed > 0
        return frames_fed(self.codec_config, passage, memory.state, in_powers=is_captured)

    def memory(self, policy: CodecPolicy | None) -> CodecMemory | None:
        """Return the memory of a piece whose frames are computed once; None where nobody hears it before its
        end, so that its windows are long.
        """
        return CodecMemory() if policy is not None and policy.is_streamed else None

    def launch(self, windows: Sequence[Sound], policy: CodecPolicy | None) -> Pending[list[np.ndarray]]:
        passages, memories = (
            _passages(windows),
            [window.memory for window in windows if window.memory is not None],
        )
        fed = self._fed(windows[0])
        if not fed:
            return launch_passages(self.codec_config, passages, self._launch, most=self.most_fed)
        before = [memory.state for memory in memories]
        pending, states = launch_next(
            self.codec_config, self._decode_window, self.host, passages, before, fed=fed
        )
        for memory, state in zip(memories, states, strict=True):
            memory.state = state
        return pending

    @property
    def most_fed(self) -> int:
        """Count the frames to feed in one call of the codec."""
        return most_fed(self.codec_config, self.policy, backend=self.host.backend)

    def _launch(self, calls: Sequence[np.ndarray]) -> Pending[list[np.ndarray]]:
        """Begin to decode the codes of every call, (B, Q, F), to samples (B, L)."""
        return self.host.launch(lambda: [self._decode(self.host.to_device(codes)) for codes in calls])


def _passages(windows: Sequence[Sound]) -> list[Passage]:
    return [window.source for window in windows]

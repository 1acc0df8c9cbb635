"""Dia's pipeline: text and prompts in, codes and speech out.

Source: nari-labs/dia model.py@876125e (0626) and @2811af1 (v0.1), Apache-2.0.
Differs from upstream: a text is independent of its neighbors in a batch; an EOS predicted inside a prompt is
ignored; a long text is spoken in pieces that have the same voices.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Unpack

import numpy as np

from tts_core.audio.delivery import Delivery
from tts_core.codecs.dac import check_fits, decode_lookahead
from tts_core.codecs.dac_calls import Passage, whole_cuts
from tts_core.dia.dialogue import Dialogue
from tts_core.dia.engine import Engine
from tts_core.dia.grid import DelayGrid
from tts_core.dia.long_text import SIDE_BY_SIDE, Script
from tts_core.dia.memory import Job, check_running, fitting_batch
from tts_core.dia.options import DiaChanges, DiaOptions
from tts_core.dia.request import (
    Batch,
    Request,
    check_prompts,
    one_each,
    paused_inside,
    request,
    request_batch,
    together,
)
from tts_core.dia.session import DiaSession
from tts_core.dia.speaking import Speaking
from tts_core.dia.text import words_of
from tts_core.live.stream import stream
from tts_core.nn.calls import named, named_parts
from tts_core.options import changed
from tts_core.pipeline import Progress, PromptLike, Watch
from tts_core.printable import counted
from tts_core.results import GenerationResult, Meter, join
from tts_core.serving.session import Session
from tts_core.text.duration import warn_of_cut
from tts_core.text.rules import NO_RULES, TextRules

REHEARSAL = 40  # frames at most: every kernel, and the first windows

Tell = Callable[[Progress], None]
Cuts = Callable[[int], Iterator[tuple[int, int]]]  # number of frames → windows, as CodecPolicy makes them
_LOG = logging.getLogger("tts_core")


class DiaPipeline:
    """A Dia network of either side with its codec and text rules. Build it with `load`."""

    def __init__(self, engine: Engine, rules: TextRules = NO_RULES):
        self.rules = rules
        self.engine, self.config, self.codec_config = engine, engine.config, engine.codec_config
        decoder = self.config.decoder_config
        check_fits(self.codec_config, decoder.num_channels, self.config.eos_token_id)
        self.sample_rate = self.codec_config.sample_rate

    def generate(
        self,
        text: str,
        *,
        prompt: PromptLike = None,
        options: DiaOptions | None = None,
        progress: Tell | None = None,
        cancel: threading.Event | None = None,
        **changes: Unpack[DiaChanges],
    ) -> GenerationResult:
        """Speak one text and return all of `stream` as one result. Arguments and errors as in `stream`.

        Pieces of a long text run in parallel, as many as fit in memory. The codec's windows may be others
        than a stream's: samples are equal up to rounding.
        """
        asked = self.request(text, changed(options or DiaOptions(), changes), prompt)
        if len(asked.pieces) > 1:
            return self._side_by_side(asked, Watch(progress, cancel))
        return join(list(self._spoken(asked, Watch(progress, cancel), self._whole_cuts)))

    def stream(
        self,
        text: str | Iterable[str],
        *,
        prompt: PromptLike = None,
        options: DiaOptions | None = None,
        progress: Tell | None = None,
        cancel: threading.Event | None = None,
        **changes: Unpack[DiaChanges],
    ) -> Iterator[GenerationResult]:
        """Speak one text part by part, each as soon as the frames that its samples depend on are known.

        text: or an iterable of its pieces; sentences are spoken as they become complete (tts_core.live).
        prompt: a voice to continue, with its transcript.  options: settings; `changes` replace some of their
        fields.  All pieces of a long text have the same voices: the prompt's, else those of the first piece
        (tts_core.dia.pieces). Their seeds are derived from the first; noise may be one source per piece.
        progress: called after every part.  cancel: once set, the stream ends with CancelledError.
        Raises UsageError for a text or value that cannot be used and ResourceError for too little memory,
        both at the call, before any network runs; for pieces of text, as they come.
        """
        asked = changed(options or DiaOptions(), changes)
        if not isinstance(text, str):
            voices = Dialogue(prompt, self.rules.shortest_anchor)
            return stream(self, text, asked, voices, progress=progress, cancel=cancel)
        return self.speak(self.request(text, asked, prompt), progress=progress, cancel=cancel)

    def request(self, text: str, options: DiaOptions, prompt: PromptLike = None) -> Request:
        """Check a caller's arguments without running a network. Raises UsageError."""
        return request(self.config, self.codec_config, text, options, prompt, self.rules)

    def speak(
        self, request: Request, *, progress: Tell | None = None, cancel: threading.Event | None = None
    ) -> Iterator[GenerationResult]:
        """Stream the speech of a request. Raises ResourceError, at the call, for too little memory."""
        return self._spoken(request, Watch(progress, cancel), self.engine.policy.decode_cuts)

    def _spoken(self, request: Request, watch: Watch, cuts: Cuts) -> Iterator[GenerationResult]:
        _LOG.info("dia: %s, about %.1f s of speech", counted(len(request.pieces), "piece"), request.seconds)
        meter = Meter(self.sample_rate)
        self._check_memory(request.job())
        return self._parts(request, meter, watch, cuts)

    def session(self, places: int, *, streamed: bool = True) -> Session:
        """Open a running batch; arguments as in Pipeline.

        Raises ResourceError, before it is allocated, for too little memory.
        """
        policy = self.engine.policy
        return DiaSession(
            self.engine, places, self._rehearsal, policy=policy if streamed else policy.unheard()
        )

    @named
    def generate_batch(
        self,
        texts: Sequence[str],
        *,
        prompts: Sequence[PromptLike] | None = None,
        options: DiaOptions | None = None,
        progress: Tell | None = None,
        cancel: threading.Event | None = None,
        **changes: Unpack[DiaChanges],
    ) -> list[GenerationResult]:
        """Speak several texts in one run of the decoder; each result equals that of the text by itself.

        seed, max_frames and noise: one for all, or one per text. The times in the results are the batch's. A
        text with a pause inside is spoken by itself.
        Raises UsageError, with the text's position, and ResourceError for too little memory.
        """
        meter, watch = Meter(self.sample_rate), Watch(progress, cancel)
        asked = changed(options or DiaOptions(), changes)
        if apart := paused_inside(texts):
            return self._apart(apart, texts, prompts, asked, progress=progress, cancel=cancel)
        batch = request_batch(self.config, self.codec_config, texts, asked, prompts, self.rules)
        self._check_memory(batch.job())
        self.engine.host.reset_peak()
        batch = batch.encoded(self.engine.encode)
        watch.tell("speech", 0)
        grid = self._run(batch, watch)
        codes = [grid.codes(item) for item in range(len(texts))]
        audio, cues = [], []
        for wave, pacing in zip(self._decode(codes), batch.pacings, strict=True):
            delivery = Delivery(pacing, self.sample_rate)
            audio.append(delivery.whole([wave]))
            cues.append(delivery.cues())
            meter.add(len(audio[-1]))
        return [
            meter.result(
                audio[item],
                codes[item],
                seed=batch.seeds[item],
                token_count=grid.filled,
                peak_bytes=self.engine.host.peak_bytes(),
                finish_reason=grid.finish_reason(item),
                cues=cues[item],
            )
            for item in range(len(texts))
        ]

    @named
    def generate_codes(
        self,
        texts: Sequence[str],
        prompts: Sequence[PromptLike] | None = None,
        *,
        options: DiaOptions | None = None,
        **changes: Unpack[DiaChanges],
    ) -> list[np.ndarray]:
        """Generate codec codes of several texts without waveforms: (Q, T) int32 each, prompts excluded.

        Texts are read exactly as given. Other arguments and errors as in `generate_batch`.
        """
        asked = changed(options or DiaOptions(), changes)
        batch = request_batch(self.config, self.codec_config, texts, asked, prompts, exactly=True)
        self._check_memory(batch.job())
        grid = self._run(batch.encoded(self.engine.encode), Watch(None, None))
        return [grid.codes(item) for item in range(len(texts))]

    def _apart(
        self,
        apart: Collection[int],
        texts: Sequence[str],
        prompts: Sequence[PromptLike] | None,
        options: DiaOptions,
        *,
        progress: Tell | None,
        cancel: threading.Event | None,
    ) -> list[GenerationResult]:
        """Speak a batch of which some texts, at the places `apart`, have pauses inside: each of those by
        itself, the others in one run. All are checked before the first is spoken.
        """
        given = [None] * len(texts) if prompts is None else prompts
        check_prompts(given, texts)
        own = one_each(options, len(texts))
        requests = {place: self.request(texts[place], own[place], given[place]) for place in apart}
        rest = [place for place in range(len(texts)) if place not in requests]
        results = {}
        if rest:
            batch = self.generate_batch(
                [texts[place] for place in rest],
                prompts=[given[place] for place in rest],
                options=together([own[place] for place in rest]),
                progress=progress,
                cancel=cancel,
            )
            results = dict(zip(rest, batch, strict=True))
        for place, one in requests.items():
            results[place] = self._side_by_side(one, Watch(progress, cancel))
        return [results[place] for place in range(len(texts))]

    def _rehearsal(self) -> Request:
        return self.request(
            "[S1] Yes.", DiaOptions(seed=0, max_frames=min(REHEARSAL, self.config.max_frames))
        )

    def _check_memory(self, job: Job) -> None:
        host = self.engine.host
        check_running(
            self.config,
            self.codec_config,
            job,
            dtype=host.dtype,
            backend=host.backend,
            free=host.free_bytes(),
            policy=self.engine.policy,
        )

    @named_parts
    def _parts(self, request: Request, meter: Meter, watch: Watch, cuts: Cuts) -> Iterator[GenerationResult]:
        """Yield a text's speech piece by piece, each window by window."""
        self.engine.host.reset_peak()
        watch.tell("prompt", 0, request.seconds)
        speaking = Speaking(request.encoded(self.engine.encode), meter)
        watch.tell("speech", 0, request.seconds)
        while not speaking.done:
            for grid, start, stop, audio in self._windows(speaking.begin(), watch, cuts):
                peak = self.engine.host.peak_bytes()
                part = speaking.part(grid, start, stop, audio, peak_bytes=peak)
                watch.tell("speech", meter.seconds_made, request.seconds)
                yield part

    @named
    def _side_by_side(self, request: Request, watch: Watch) -> GenerationResult:
        """Speak a long text as one result: pieces that do not depend on each other run as a batch."""
        meter, host = Meter(self.sample_rate), self.engine.host
        together = fitting_batch(
            self.config,
            self.codec_config,
            request.job(SIDE_BY_SIDE),
            dtype=host.dtype,
            backend=host.backend,
            free=host.free_bytes(),
            policy=self.engine.policy,
        )
        self._check_memory(request.job(together))
        host.reset_peak()
        watch.tell("prompt", 0, request.seconds)
        script = Script(request.encoded(self.engine.encode))
        watch.tell("speech", 0, request.seconds)
        for places in script.groups(together):
            batch = script.batch(places)
            grid = self._run(batch, watch)
            waves = self._decode([grid.codes(item) for item in range(len(places))])
            for item, (place, wave) in enumerate(zip(places, waves, strict=True)):
                script.add(place, batch, grid, item, wave)
            made = script.frames / self.codec_config.frame_rate / request.pacing.speed
            watch.tell("speech", made, request.seconds)
        delivery = Delivery(request.pacing, self.sample_rate)
        audio = delivery.whole(script.waves())
        meter.add(len(audio))
        whole = meter.result(
            audio,
            script.codes(),
            seed=None,
            token_count=script.token_count,
            peak_bytes=host.peak_bytes(),
            finish_reason=script.finish_reason,
            cues=delivery.cues(),
        )
        return script.part(whole, ended=sorted(script.spoken))

    def _windows(
        self, batch: Batch, watch: Watch, windows: Cuts
    ) -> Iterator[tuple[DelayGrid, int, int, np.ndarray]]:
        """Cut one text's speech on the codec's absolute grid, so that the joined windows equal the whole.

        Yields the grid, the first and last + 1 of its frames, and their samples (L,).
        """
        lookahead, made = decode_lookahead(self.codec_config), 0
        for grid in self.engine.rows(batch):
            watch.check()
            known = grid.frames(0)
            ready = known if grid.done else known - lookahead
            cuts = [cut for cut in windows(known) if made < cut[1] <= ready]
            if grid.done and not cuts:  # an empty last part ends the stream
                cuts = [(known, known)]
            codes = grid.codes(0)
            for start, stop in cuts:
                [audio] = self.engine.decode_windows([Passage(codes, start, stop)])
                yield grid, start, stop, audio
                made = stop

    def _whole_cuts(self, frames: int) -> Iterator[tuple[int, int]]:
        return whole_cuts(self.engine.policy, self.engine.host.backend, frames)

    def _decode(self, codes: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Decode several texts to samples (L,) each; windows of equal length run in one call."""
        cuts = [list(self._whole_cuts(one.shape[1])) for one in codes]
        passages = [Passage(one, *cut) for one, its in zip(codes, cuts, strict=True) for cut in its]
        parts = iter(self.engine.decode_windows(passages))
        return [np.concatenate([np.zeros(0, np.float32), *islice(parts, len(its))]) for its in cuts]

    def _run(self, batch: Batch, watch: Watch) -> DelayGrid:
        for grid in self.engine.rows(batch):
            watch.check()
            if grid.done:
                self._warn_of_cuts(batch, grid)
                return grid
        raise AssertionError("a grid ends at max_frames at the latest")

    def _warn_of_cuts(self, batch: Batch, grid: DelayGrid) -> None:
        """Log a warning for every text that reached the limit of its own length."""
        for item, frames in enumerate(batch.max_frames):
            if batch.own_limits and grid.finish_reason(item) == "length":
                warn_of_cut(frames, self.codec_config.frame_rate, words_of(batch.tokens[item]))

"""Dia's pipeline: text and prompts in, codes and speech out.

Source: nari-labs/dia model.py@876125e (0626) and @2811af1 (v0.1), Apache-2.0.
Differs from upstream: a text is independent of its neighbors in a batch; an EOS predicted inside a prompt is
ignored; a long text is spoken in pieces that have the same voices.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Unpack

import numpy as np

from tts_core.codecs.dac import check_fits
from tts_core.dia.admission import DiaAdmission
from tts_core.dia.dialogue import Dialogue
from tts_core.dia.long_text import DiaScript
from tts_core.dia.memory import DiaJob, check_running, fitting_batch
from tts_core.dia.net import DiaNet
from tts_core.dia.options import DiaChanges, DiaOptions
from tts_core.dia.request import DiaRequest, request, requests
from tts_core.dia.speech import speak
from tts_core.live.stream import stream
from tts_core.nn.calls import exclusive
from tts_core.options import chosen
from tts_core.pipeline import Callbacks, Progress, PromptLike
from tts_core.results import GenerationResult, Meter
from tts_core.speaking.pipeline import SpeechPipeline
from tts_core.speaking.session import SpeechSession
from tts_core.speech.script import SIDE_BY_SIDE
from tts_core.speech.together import Line, Single, log, together
from tts_core.text.rules import NO_RULES, TextRules

REHEARSAL = 40  # frames at most: every kernel, and the first windows

Tell = Callable[[Progress], None]


class DiaPipeline(SpeechPipeline[DiaRequest]):
    """A Dia network of either side with its codec and text rules. Build it with `load`."""

    name = "dia"

    def __init__(self, engine: DiaNet, rules: TextRules = NO_RULES):
        self.rules = rules
        self.engine, self.config, self.codec_config = engine, engine.config, engine.codec_config
        self.configs = engine.configs
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
        asked = self.request(text, chosen(DiaOptions, options, changes), prompt)
        log(self.name, asked)
        [spoken] = self._together([asked], Callbacks(progress, cancel))
        return spoken

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
        prompt: a voice to continue, with its transcript.
        options: settings; `changes` replace some of their fields.
        All pieces of a long text have the same voices: the prompt's, else those of the first piece
        (tts_core.dia.pieces). Their seeds are derived from the first; noise may be one source per piece.
        progress: called after every part.
        cancel: once set, the stream ends with CancelledError.
        Raises UsageError for a text or value that cannot be used and ResourceError for too little memory,
        both at the call, before any network runs; for pieces of text, as they come.
        """
        asked = chosen(DiaOptions, options, changes)
        if not isinstance(text, str):
            voices = Dialogue(prompt, self.rules.shortest_anchor)
            return stream(self, text, asked, voices, progress=progress, cancel=cancel)
        return self.speak(self.request(text, asked, prompt), progress=progress, cancel=cancel)

    def request(self, text: str, options: DiaOptions, prompt: PromptLike = None) -> DiaRequest:
        """Check a caller's arguments without running a network. Raises UsageError."""
        return request(self.config, self.codec_config, text, options, prompt, self.rules)

    def session(self, places: int, *, streamed: bool = True) -> SpeechSession:
        """Open a running batch; arguments as in Pipeline. Raises ResourceError for too little memory."""
        return self.opened(places, None, streamed=streamed)

    def generate_batch(
        self,
        texts: Sequence[str],
        *,
        prompts: PromptLike | Sequence[PromptLike] = None,
        options: DiaOptions | None = None,
        progress: Tell | None = None,
        cancel: threading.Event | None = None,
        **changes: Unpack[DiaChanges],
    ) -> list[GenerationResult]:
        """Speak several texts in one running batch; each result equals that of the text by itself.

        prompts, seed, max_frames and noise: one for all, or one per text. A text with a pause inside is
        spoken in pieces, beside the others. The times in a result are those until its text was spoken.
        Raises UsageError, with the text's position, and ResourceError for too little memory.
        """
        asked = chosen(DiaOptions, options, changes)
        every = requests(self.config, self.codec_config, texts, asked, prompts, self.rules)
        return self._together(every, Callbacks(progress, cancel))

    def generate_codes(
        self,
        texts: Sequence[str],
        prompts: PromptLike | Sequence[PromptLike] = None,
        *,
        options: DiaOptions | None = None,
        **changes: Unpack[DiaChanges],
    ) -> list[np.ndarray]:
        """Generate codec codes of several texts without waveforms: (Q, T) int32 each, prompts excluded.

        Texts are read exactly as given. Other arguments and errors as in `generate_batch`.
        """
        asked = chosen(DiaOptions, options, changes)
        every = requests(self.config, self.codec_config, texts, asked, prompts, exactly=True)
        spoken = self._together(every, Callbacks(None, None), sound=False)
        return [one.codes for one in spoken]

    def _rehearsal(self) -> DiaRequest:
        return self.request(
            "[S1] Yes.", DiaOptions(seed=0, max_frames=min(REHEARSAL, self.config.max_frames))
        )

    def check_memory(self, job: DiaJob) -> None:
        """Raise ResourceError, naming what would fit, unless a job fits in the free memory."""
        check_running(self.configs, job, self.engine.host.machine(self.engine.policy))

    def opened(
        self, places: int, job: DiaJob | None, *, streamed: bool, sound: bool = True, is_late: bool = False
    ) -> SpeechSession:
        """Open a running batch. A job that is streamed has it to itself; its windows grow faster.

        is_late: nothing is decoded before all speeches have their codes.
        """
        engine, policy = self.engine, self.engine.policy.unheard()
        if streamed:
            policy = engine.policy if job is None else engine.policy.alone()
        admission = DiaAdmission(self.configs, engine.host, places, job, policy)
        longest = admission.longest
        batch = engine.slots(
            admission.places, rows=admission.rows, text_rows=longest.text_bytes, guided=longest.guided
        )
        windows = policy if sound else None
        return SpeechSession(
            *(engine, speak, batch, admission, self._rehearsal),
            policy=windows, has_sound=sound, is_late=is_late,
        )  # fmt: skip

    @exclusive
    def _together(
        self, asked: Sequence[DiaRequest], watch: Callbacks, *, sound: bool = True
    ) -> list[GenerationResult]:
        """Speak requests at once; those with several pieces as many pieces at once as fit."""
        jobs = [one.job(SIDE_BY_SIDE) for one in asked]
        least = max(1, sum(len(one.pieces) == 1 for one in asked))
        wanted, machine = DiaJob.together(jobs), self.engine.host.machine(self.engine.policy)
        places = fitting_batch(self.configs, wanted, machine)
        job = replace(wanted, batch=max(places, least))
        self.check_memory(job)
        overlaps = self.engine.host.overlaps
        is_late = not overlaps and all(len(one.pieces) == 1 for one in asked) and len(asked) <= places

        def session(pieces: int) -> SpeechSession:
            texts = min(pieces, job.batch)
            return self.opened(texts, job, streamed=False, sound=sound, is_late=is_late)

        lines = [self._line(one) for one in asked]
        return together(session, lines, watch, sum(one.seconds for one in asked))

    def _line(self, request: DiaRequest) -> Line:
        if len(request.pieces) == 1:
            return Single(request)
        return DiaScript(request.encoded(self.engine.encode), Meter(self.sample_rate))

"""Qwen3-TTS's pipeline: text and a voice in, codes and speech out.

Source: QwenLM/Qwen3-TTS@022e286, Apache-2.0.
Differs from upstream: a long text is spoken in pieces; speech that takes longer than anybody reads its text
is cut off, with a warning; a text that contains a control token is refused, and so are a transcript that does
not fit its recording, and an instruction that the checkpoint would drop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Unpack

import numpy as np

from tts_core.errors import UsageError
from tts_core.live.stream import checked_pieces
from tts_core.nn.calls import exclusive
from tts_core.options import chosen
from tts_core.pipeline import Callbacks, Progress, PromptLike
from tts_core.qwen3.admission import Qwen3Admission
from tts_core.qwen3.memory import Qwen3Job, check_running
from tts_core.qwen3.net import Qwen3Net
from tts_core.qwen3.options import Qwen3Changes, Qwen3Options
from tts_core.qwen3.request import Qwen3Facts, Qwen3Request, live, rehearsal, request
from tts_core.qwen3.speech import speak
from tts_core.qwen3.voice import read_voice
from tts_core.results import GenerationResult, join
from tts_core.speaking.pipeline import SpeechPipeline
from tts_core.speaking.session import SpeechSession

Tell = Callable[[Progress], None]


class Qwen3Pipeline(SpeechPipeline[Qwen3Request]):
    """A Qwen3-TTS of either side with its codec. Build it with `load`."""

    name = "qwen3"

    def __init__(self, engine: Qwen3Net):
        self.engine = engine
        self.facts = Qwen3Facts.of(engine.configs, engine.documents)
        self.config, self.codec_config = self.facts.config, self.facts.codec
        self.sample_rate = self.codec_config.sample_rate

    def generate(
        self,
        text: str,
        *,
        prompt: PromptLike = None,
        options: Qwen3Options | None = None,
        progress: Tell | None = None,
        cancel: threading.Event | None = None,
        **changes: Unpack[Qwen3Changes],
    ) -> GenerationResult:
        """Speak one text and return all of `stream` as one result, with its arguments and errors.

        Codes are decoded as the original does, in pieces of 300 frames with 25 of context: the first 300
        equal the stream's up to rounding.
        """
        asked = self.request(text, chosen(Qwen3Options, options, changes), prompt)
        return join(list(self._speak(asked, Callbacks(progress, cancel), is_streamed=False)))

    def stream(
        self,
        text: str | Iterable[str],
        *,
        prompt: PromptLike = None,
        options: Qwen3Options | None = None,
        progress: Tell | None = None,
        cancel: threading.Event | None = None,
        **changes: Unpack[Qwen3Changes],
    ) -> Iterator[GenerationResult]:
        """Speak one text part by part, each as soon as its codes are known.

        text: or an iterable of its pieces, which are read with the frames (`layout` is streamed). Speech
        begins with the first word, and waits where the next one has not come; after a recording with its
        transcript it begins with the first sentence. Errors in pieces are raised as they come.
        prompt: of a Base model: a recording, with its transcript, which speech continues, or without, for its
        voice alone; or a vector from `speaker`.
        options: settings; `changes` replace some of their fields.
        progress: called after every part.
        cancel: once set, the stream ends with CancelledError.
        Raises UsageError for a text, voice or value that cannot be used and ResourceError for too little
        memory, both at the call, before any network runs.
        """
        asked = chosen(Qwen3Options, options, changes)
        if isinstance(text, str):
            return self.speak(self.request(text, asked, prompt), progress=progress, cancel=cancel)
        opened = live(self.facts, "", asked, prompt)
        return self._speak(opened, Callbacks(progress, cancel), is_streamed=True, text=checked_pieces(text))

    def request(self, text: str, options: Qwen3Options, prompt: PromptLike = None) -> Qwen3Request:
        """Check a caller's arguments without running a network. Raises UsageError."""
        return request(self.facts, text, options, prompt)

    def session(self, places: int, *, streamed: bool = True) -> SpeechSession:
        """Open a running batch; arguments as in Pipeline. Raises ResourceError for too little memory."""
        return self.opened(places, None, streamed=streamed)

    def generate_batch(
        self,
        texts: Sequence[str],
        *,
        prompts: PromptLike | Sequence[PromptLike] = None,
        options: Qwen3Options | None = None,
        progress: Tell | None = None,
        cancel: threading.Event | None = None,
        **changes: Unpack[Qwen3Changes],
    ) -> list[GenerationResult]:
        """Speak several texts together; each has the codes that it has by itself.

        prompts: one for all, or one per text.  seed, max_frames and noise: one for all, or one per text. All
        are checked before the first is spoken. Raises UsageError and ResourceError.
        """
        given = chosen(Qwen3Options, options, changes)
        return self._together(self._requests(texts, given, prompts), Callbacks(progress, cancel))

    def generate_codes(
        self,
        texts: Sequence[str],
        prompts: PromptLike | Sequence[PromptLike] = None,
        *,
        options: Qwen3Options | None = None,
        **changes: Unpack[Qwen3Changes],
    ) -> list[np.ndarray]:
        """Generate codec codes of several texts without waveforms: (Q, T) int32 each.

        Texts are read as written, each in one piece. Other arguments and errors as in `generate_batch`.
        """
        exactly = replace(chosen(Qwen3Options, options, changes), as_written=True)
        spoken = self._together(self._requests(texts, exactly, prompts), Callbacks(None, None), sound=False)
        return [one.codes for one in spoken]

    @exclusive
    def speaker(self, prompt: PromptLike) -> np.ndarray:
        """Compute the vector of a recording, (D,) float32, to pass as `prompt`; or that vector.

        Raises UsageError for a prompt that is not a voice, and for a model that takes none.
        """
        options = Qwen3Options(trust_transcript=True)
        voice = read_voice(self.config, self.codec_config, self.facts.tokenizer, options, prompt)
        vector = voice.vector_of(self.engine.vector)
        if vector is None:
            raise UsageError(
                "prompt: this checkpoint takes no recording; its voices are built in or described"
            )
        return vector.copy()

    def opened(
        self, places: int, job: Qwen3Job | None, *, streamed: bool, sound: bool = True
    ) -> SpeechSession:
        engine, admission = self.engine, Qwen3Admission(self.engine, places, job)
        batch = engine.make_slots(engine.network, texts=admission.places, room=admission.room)
        again = partial(rehearsal, self.facts)
        policy = engine.policy if streamed else None
        return SpeechSession(engine, speak, batch, admission, again, policy=policy, has_sound=sound)

    def check_memory(self, job: Qwen3Job) -> None:
        """Raise ResourceError, naming what would fit, unless a job fits in the free memory."""
        check_running(self.engine.configs, job, self.engine.host.machine(self.engine.policy))

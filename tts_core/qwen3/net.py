"""Qwen3-TTS's networks: the talker's running batch, the speaker encoder and the codec of either side.

Source: QwenLM/Qwen3-TTS@022e286, Apache-2.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tts_core.audio.voice_cache import VoiceCache
from tts_core.codecs.policy import CodecPolicy
from tts_core.errors import GenerationError, UsageError
from tts_core.nn.beside import Pending, Then
from tts_core.pipeline import PromptLike
from tts_core.qwen3.footprint import FIXED, PLAN, Qwen3Job
from tts_core.qwen3.layout import Qwen3Inputs, cut_of_recording
from tts_core.qwen3.options import Qwen3Options
from tts_core.qwen3.request import Qwen3Facts, Qwen3Request
from tts_core.qwen3.voice import read_voice
from tts_core.speaking.admission import Admission
from tts_core.speaking.net import StreamNet
from tts_core.speaking.running import RunningBatch
from tts_core.speaking.speech import Sound

SERVED = 8192  # positions of a request of unknown length, where memory is taken at once


class Qwen3Net(StreamNet):
    """Qwen3-TTS's networks and their codec.

    network: the talker, and the speaker encoder of a model that has one.
    make_slots, fault: `qwen3/decoder.py`.
    """

    kinds, facts_of, plan = ("qwen3", "qwen3_codec"), Qwen3Facts.of, PLAN

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._vectors = VoiceCache()

    def windows(self, job: Qwen3Job | None, *, streamed: bool) -> CodecPolicy | None:
        return self.streamed() if streamed else None

    def open(
        self, places: int, job: Qwen3Job | None, policy: CodecPolicy | None
    ) -> tuple[RunningBatch, Admission]:
        """As of any model. Requests between two pieces keep their places."""
        limit = self.network.config.max_positions
        if self.host.backend in FIXED:
            limit = min(limit, SERVED if job is None else job.positions + 1)
        longest = job or Qwen3Job(frames=limit // 2, prompt=limit // 2)

        def holds(requests: Sequence[Qwen3Request]) -> bool:
            *_, last = requests
            if (positions := last.job().positions) > limit:
                raise UsageError(
                    f"text: {positions} positions with its speech are more than the {limit} of this batch; "
                    "give shorter texts, or a smaller max_seconds"
                )
            return True

        admission = self.admission(places, lambda texts: replace(longest, batch=texts), holds=holds)
        return self.slots(admission.places, limit), admission

    def slots(self, texts: int, capacity: int) -> RunningBatch:
        """Open a running batch for as many texts, each of at most `capacity` positions."""
        return self._make_slots(self.network, texts=texts, capacity=capacity)

    def fault(self, text: Qwen3Inputs, frames: np.ndarray) -> GenerationError:
        """Build the error that names the first layer with NaN or infinity, by running a text again.

        frames: drawn before the logits that are not finite, (Q, T).
        """
        return self._fault(self.network, text, frames)

    def vector(self, samples: np.ndarray) -> np.ndarray:
        """Encode a recording, (L,) float32 at the speaker encoder's rate, as the voice's vector (D,)."""
        embed = self.network.speaker_encoder.embed
        return self._encoded(self._vectors, [samples], lambda _: embed(samples))

    def voice(self, prompt: PromptLike) -> np.ndarray:
        """Encode a recording as a voice's vector, (D,) float32; or return that vector."""
        facts, options = self.facts, Qwen3Options(trust_transcript=True)
        voice = read_voice(facts.config, facts.codec, facts.tokenizer, options, prompt)
        vector = voice.vector_of(self.vector)
        if vector is None:
            raise UsageError(
                "prompt: this checkpoint takes no recording; its voices are built in or described"
            )
        return vector.copy()

    def launch(self, windows: Sequence[Sound], policy: CodecPolicy | None) -> Pending[list[np.ndarray]]:
        """As of any stream; without a policy pieces are decoded in the original's pieces of 300 frames."""
        if policy is not None:
            return super().launch(windows, policy)
        [window] = windows
        before = None if window.memory is None else window.memory.before
        codes = window.codes if before is None else np.concatenate([before, window.codes], axis=1)

        def speech(made: Sequence[np.ndarray]) -> list[np.ndarray]:
            [samples] = made[0]
            recording = codes.shape[1] - window.codes.shape[1]
            skipped = cut_of_recording(recording, codes.shape[1], len(samples))
            return [samples[skipped:].astype(np.float32)]

        return Then(self.host.launch(lambda: [self.codec.decode(codes[None])]), speech)

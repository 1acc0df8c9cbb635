"""The voice of a request, as the checkpoint's mode has it: built in, of a recording, or described."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tts_core.audio.files import resample
from tts_core.codecs.qwen3_codec import Qwen3CodecConfig
from tts_core.errors import UsageError
from tts_core.pipeline import PromptLike
from tts_core.prompt import Prompt
from tts_core.qwen3.config import BASE, CUSTOM_VOICE, VOICE_DESIGN, Qwen3Config, Speaker
from tts_core.qwen3.layout import named_speaker, transcript
from tts_core.qwen3.options import Qwen3Options
from tts_core.qwen3.tokenizer import Qwen3Tokenizer
from tts_core.text.pace import check_transcript


@dataclass(frozen=True, eq=False)
class Qwen3Voice:
    """A checked voice.

    speaker: built in.
    vector: (D,) float32, of a recording.
    samples: (L,) float32 at the codec's rate, whose vector is not known yet.
    for_speaker: (L',) float32, the same at the speaker encoder's rate.
    transcript: ids of the recording's text in its template, which speech continues; none: the vector alone.
    frames: of the recording, where speech continues it.
    """

    speaker: Speaker | None = None
    vector: np.ndarray | None = None
    samples: np.ndarray | None = None
    for_speaker: np.ndarray | None = None
    transcript: tuple[int, ...] = ()
    frames: int = 0

    def vector_of(self, encode: Callable[[np.ndarray], np.ndarray]) -> np.ndarray | None:
        """Return the vector of a recording, None without one. encode: `heard` → (D,)."""
        return self.vector if self.for_speaker is None else encode(self.for_speaker)


def read_voice(
    config: Qwen3Config,
    codec: Qwen3CodecConfig,
    tokenizer: Qwen3Tokenizer,
    options: Qwen3Options,
    prompt: PromptLike,
) -> Qwen3Voice:
    """Check the voice, recording and instruction of a request against the checkpoint's mode.

    Raises UsageError, saying what the mode needs.
    """
    _check_mode(config, options, prompt)
    if config.mode == CUSTOM_VOICE:
        assert options.voice is not None
        return Qwen3Voice(named_speaker(config, options.voice))
    if prompt is None:
        return Qwen3Voice()
    assert config.speaker_encoder is not None
    if isinstance(prompt, np.ndarray):
        return Qwen3Voice(vector=_vector(prompt, config.talker.hidden_size))
    if not isinstance(prompt, Prompt):
        raise UsageError("prompt: give a recording of the voice, as Prompt.of(audio=..., text=...)")
    reference = prompt.one
    if reference.audio is None:
        raise UsageError("prompt: Qwen3-TTS needs the samples of a recording, not codes")
    plain = Prompt.of(reference.audio, sample_rate=reference.sample_rate).one  # its text is checked below
    samples = plain.samples(codec.sample_rate, reference.name, quality="HQ")
    assert samples is not None
    for_speaker = resample(samples, codec.sample_rate, config.speaker_encoder.sample_rate, quality="HQ")
    if not (reference.text or "").strip():
        return Qwen3Voice(samples=samples, for_speaker=for_speaker)
    assert reference.text is not None
    tokenizer.check_plain(reference.text, "transcript")
    if not options.trust_transcript:
        language = None if options.language.lower() == "auto" else options.language.lower()
        check_transcript(reference.text.strip(), len(samples) / codec.sample_rate, language, reference.name)
    ids = tuple(tokenizer.encode(transcript(reference.text)))
    return Qwen3Voice(
        samples=samples,
        for_speaker=for_speaker,
        transcript=ids,
        frames=math.ceil(len(samples) / codec.hop_length),
    )


def _check_mode(config: Qwen3Config, options: Qwen3Options, prompt: PromptLike) -> None:
    """Raise UsageError for what a mode lacks or does not take."""
    mode, names = config.mode, ", ".join(speaker.name for speaker in config.speakers)
    if mode == BASE and prompt is None:
        raise UsageError(
            "prompt: Qwen3-TTS Base speaks in the voice of a recording; give --ref-audio, and its words with "
            "--ref-text, in Python Prompt.from_file(path, text)"
        )
    if mode == CUSTOM_VOICE and options.voice is None:
        raise UsageError(f"voice: Qwen3-TTS CustomVoice speaks in a built-in voice; give one of {names}")
    if mode == VOICE_DESIGN and not options.instruct:
        raise UsageError("instruct: Qwen3-TTS VoiceDesign needs a description of the voice in words")
    if mode != BASE and prompt is not None:
        other = "voice" if mode == CUSTOM_VOICE else "instruct"
        raise UsageError(f"prompt: only Qwen3-TTS Base takes a recording; here the voice comes from {other}")
    if mode != CUSTOM_VOICE and options.voice is not None:
        raise UsageError(
            f"voice: this checkpoint has no built-in voices; {options.voice!r:.40} is in CustomVoice"
        )
    if options.instruct and not config.takes_instruction:
        raise UsageError(
            "instruct: this checkpoint takes no instruction; CustomVoice and VoiceDesign of 1.7B do"
        )


def _vector(given: np.ndarray, size: int) -> np.ndarray:
    if given.shape != (size,) or given.dtype.kind != "f" or not np.isfinite(given).all():
        raise UsageError(
            f"prompt: an array must be a speaker vector of {size} numbers, found shape {given.shape}, "
            f"{given.dtype}; give a recording as Prompt.of(audio=...)"
        )
    return given.astype(np.float32)

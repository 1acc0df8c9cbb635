"""The sequence that the talker reads before it speaks: text and codec ids by position.

Source: QwenLM/Qwen3-TTS@022e286, Apache-2.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tts_core.errors import UsageError, did_you_mean
from tts_core.nn.sentinels import Sentinel
from tts_core.qwen3.config import Qwen3Config, Speaker

# in place of a codec id; NOTHING also of a text id
NOTHING, SPEAKER, FRAME = Sentinel.NOTHING, Sentinel.SPEAKER, Sentinel.FRAME
ROLE = 3  # ids before a text's body
ENDS, REFERENCE_ENDS = 5, 2  # ids after the body of a text, and of a recording's transcript


@dataclass(frozen=True)
class TalkerInputs:
    """Ids by position, whose embeddings are added.

    text, codec: (T,) int32.  SPEAKER is the vector of a recording, FRAMEs are its frames in order.
    trailing: text ids that are added to the first generated frames; after them, `padding`.
    """

    text: np.ndarray
    codec: np.ndarray
    trailing: tuple[int, ...]
    padding: int


@dataclass(frozen=True)
class Qwen3Recording:
    """Reference speech. transcript: its ids in a template, and frames: their number; 0 without them."""

    transcript: tuple[int, ...] = ()
    frames: int = 0


def script(text: str, *, more: bool = False) -> str:
    """Put a text into its template; one that goes on into the beginning of it."""
    end = "" if more else "<|im_end|>\n<|im_start|>assistant\n"
    return f"<|im_start|>assistant\n{text}{end}"


def transcript(text: str) -> str:
    """Put the transcript of a recording into its template."""
    return f"<|im_start|>assistant\n{text}<|im_end|>\n"


def instruction(text: str) -> str:
    """Put an instruction into its template."""
    return f"<|im_start|>user\n{text}<|im_end|>\n"


def named_speaker(config: Qwen3Config, name: str) -> Speaker:
    """Find a built-in voice, in any case of letters. Raises UsageError for an unknown name."""
    names = [speaker.name for speaker in config.speakers]
    alike = [speaker for speaker in config.speakers if speaker.name.lower() == name.lower()]
    found = next((speaker for speaker in alike if speaker.name == name), alike[0] if alike else None)
    if found is None:
        hint = did_you_mean(name, names)
        listed = ", ".join(names) or "none in this model"
        raise UsageError(f"voice: {name!r:.40} is none of {listed}{f'; {hint}' if hint else ''}")
    return found


def language_id(config: Qwen3Config, language: str | None, speaker: Speaker | None) -> int | None:
    """Return the id of a language's name; None for `auto`. A speaker of a dialect speaks it for Chinese.

    Raises UsageError for an unknown language.
    """
    name, known = (language or "auto").lower(), dict(config.languages)
    if speaker is not None and speaker.dialect and name in ("auto", "chinese"):
        return known[speaker.dialect]
    if name == "auto":
        return None
    offered = [each for each in known if "dialect" not in each]
    if name not in offered:
        hint = did_you_mean(name, offered)
        raise UsageError(
            f"language: {name!r:.40} is none of auto, {', '.join(offered)}{f'; {hint}' if hint else ''}"
        )
    return known[name]


def build(
    config: Qwen3Config,
    text: Sequence[int],
    *,
    language: int | None,
    voice: int = NOTHING,
    instruction: Sequence[int] = (),
    recording: Qwen3Recording | None = None,
    streamed: bool,
    more: bool = False,
) -> TalkerInputs:
    """Lay out a text.

    text, instruction: ids in their templates.
    voice: a built-in speaker's id, SPEAKER or NOTHING.
    streamed: text is added frame by frame, as if it arrived; otherwise it is all read before speech.
    more: a streamed text without recording goes on; one id or more of its body have come.
    """
    rows = _Rows(config)
    rows.add(instruction, NOTHING)
    rows.add(text[:ROLE], NOTHING)
    tags = [config.codec_nothink_id, config.codec_think_bos_id, config.codec_think_eos_id]
    if language is not None:
        tags = [config.codec_think_id, config.codec_think_bos_id, language, config.codec_think_eos_id]
    for tag in [*tags, *([] if voice == NOTHING else [voice])]:
        rows.add([config.tts_pad_id], tag)
    rows.add([config.tts_bos_id], config.codec_pad_id)
    body = list(text[ROLE:] if more else text[ROLE:-ENDS])
    if recording is not None and recording.transcript:
        body = [*recording.transcript[ROLE:-REFERENCE_ENDS], *body]
        return _after_recording(rows, [*body, config.tts_eos_id], recording.frames, streamed=streamed)
    if streamed:
        rows.add(text[ROLE : ROLE + 1], config.codec_bos_id)
        return rows.layout(body[1:] if more else [*body[1:], config.tts_eos_id])
    rows.add([*body, config.tts_eos_id], config.codec_pad_id)
    rows.add([config.tts_pad_id], config.codec_bos_id)
    return rows.layout()


def _after_recording(rows: _Rows, body: list[int], frames: int, *, streamed: bool) -> TalkerInputs:
    """Continue with both texts, and the frames of the recording."""
    config, codes = rows.config, [rows.config.codec_bos_id, *[FRAME] * frames]
    if not streamed:
        rows.add(body, config.codec_pad_id)
    begun = body[: len(codes)] if streamed else []
    begun += [config.tts_pad_id] * (len(codes) - len(begun))
    for id, code in zip(begun, codes, strict=True):
        rows.add([id], code)
    return rows.layout(body[len(codes) :] if streamed else ())


class _Rows:
    """Positions so far."""

    def __init__(self, config: Qwen3Config):
        self.config = config
        self.text: list[int] = []
        self.codec: list[int] = []

    def add(self, text: Sequence[int], codec: int) -> None:
        self.text += text
        self.codec += [codec] * len(text)

    def layout(self, trailing: Sequence[int] = ()) -> TalkerInputs:
        text, codec = np.array(self.text, np.int32), np.array(self.codec, np.int32)
        return TalkerInputs(text, codec, tuple(trailing), self.config.tts_pad_id)


def cut_of_recording(frames: int, total: int, samples: int) -> int:
    """Count the samples of a recording at the start of decoded speech, as the original does: in floats, so
    that it may be one sample short.
    """
    return int(frames / total * samples)

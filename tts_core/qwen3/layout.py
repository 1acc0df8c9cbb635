"""The sequence that the talker reads before it speaks, by position, and how codes are drawn.

Source: QwenLM/Qwen3-TTS@022e286, Apache-2.0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tts_core.errors import CheckpointError, UsageError, did_you_mean
from tts_core.nn.noise import Noise
from tts_core.nn.sampling import OFF, Sampler
from tts_core.nn.sentinels import Sentinel
from tts_core.qwen3.config import Qwen3Config, Speaker
from tts_core.speaking.rows import BatchText, TextInputs

# in place of a codec id; NOTHING also of a text id
NO_ID, SPEAKER, FRAME = Sentinel.NO_ID, Sentinel.SPEAKER, Sentinel.FRAME
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
    offered = [entry for entry in known if "dialect" not in entry]
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
    voice: int = NO_ID,
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
    rows.add(instruction, NO_ID)
    rows.add(text[:ROLE], NO_ID)
    tags = [config.codec_nothink_id, config.codec_think_bos_id, config.codec_think_eos_id]
    if language is not None:
        tags = [config.codec_think_id, config.codec_think_bos_id, language, config.codec_think_eos_id]
    for tag in [*tags, *([] if voice == NO_ID else [voice])]:
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


GENERATION = "generation_config.json"
LEAST_FRAMES = 2  # before which speech does not end


@dataclass(frozen=True)
class Qwen3Choice:
    """Rule of one kind of draw. top_k: 0 keeps all; top_p: 1 keeps all. Raises UsageError for nonsense."""

    is_greedy: bool = False
    temperature: float = 0.9
    top_k: int = 50
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not self.is_greedy and not self.temperature > 0:
            raise UsageError(f"temperature: {self.temperature} is not positive")
        if self.top_k < 0 or not 0 < self.top_p <= 1:
            raise UsageError(f"top_k {self.top_k} must be at least 0, top_p {self.top_p} in (0, 1]")

    def numbers(self, repetition_penalty: float = 1.0) -> Qwen3Numbers:
        """Return the numbers by which a sampler draws."""
        return Qwen3Numbers(
            repetition_penalty=repetition_penalty,
            min_tokens=LEAST_FRAMES,
            temperature=0 if self.is_greedy else self.temperature,
            top_k=self.top_k,
            rising_top_p=1 - self.top_p if self.top_p < 1 else OFF["rising_top_p"],
        )


@dataclass(frozen=True)
class Qwen3Numbers:
    """A choice as its sampler draws."""

    repetition_penalty: float
    min_tokens: int
    temperature: float
    top_k: int
    rising_top_p: float


LAST = "temperature", "top_k", "rising_top_p"
FIRST = Sampler(Qwen3Numbers, ("repetition_penalty", "allowed_ids", "min_tokens", *LAST))
OTHERS = Sampler(Qwen3Numbers, LAST)


def allowed_ids(vocabulary: int, suppressed: int, eos: int) -> np.ndarray:
    """Return which first codes may be drawn: all but the `suppressed` last ids, and the end. → (V,) bool."""
    ids = np.arange(vocabulary)
    return (ids < vocabulary - suppressed) | (ids == eos)


@dataclass(frozen=True)
class Qwen3Sampling:
    """Rules of a frame's first code and of the others."""

    first: Qwen3Choice = Qwen3Choice()
    others: Qwen3Choice = Qwen3Choice()
    repetition_penalty: float = 1.05

    def __post_init__(self) -> None:
        if not self.repetition_penalty > 0:
            raise UsageError(f"repetition_penalty: {self.repetition_penalty} is not positive")

    @cached_property
    def numbers(self) -> tuple[Qwen3Numbers, Qwen3Numbers]:
        """The numbers by which the samplers of first codes and of others draw."""
        return self.first.numbers(self.repetition_penalty), self.others.numbers()


def read_generation(config: Mapping[str, Any]) -> Qwen3Sampling:
    """Read generation_config.json, with the original's values for missing ones.

    Raises CheckpointError for values that are no settings.
    """

    def get(name: str, otherwise: Any) -> Any:
        value = config.get(name, otherwise)
        if type(value) is not type(otherwise) and not (type(otherwise) is float and type(value) is int):
            raise CheckpointError(f"{GENERATION}: {name} {value!r:.40} is no {type(otherwise).__name__}")
        return value

    def choice(prefix: str, sampled: str) -> Qwen3Choice:
        own = Qwen3Choice()
        return Qwen3Choice(
            is_greedy=not get(sampled, True),
            temperature=get(f"{prefix}temperature", own.temperature),
            top_k=get(f"{prefix}top_k", own.top_k),
            top_p=get(f"{prefix}top_p", own.top_p),
        )

    penalty = get("repetition_penalty", Qwen3Sampling().repetition_penalty)
    try:
        return Qwen3Sampling(choice("", "do_sample"), choice("subtalker_", "subtalker_dosample"), penalty)
    except UsageError as fault:
        raise CheckpointError(f"{GENERATION}: {fault}") from None


@dataclass(frozen=True, eq=False)
class Qwen3Inputs(TextInputs):
    """A text that takes a slot.

    speaker: (D,) float32, the vector of a recording.
    frames: (Q, F) int32, the codes of a recording.
    more: its text goes on: it waits where a frame has none yet.
    """

    layout: TalkerInputs
    sampling: Qwen3Sampling
    noise: Noise
    speaker: np.ndarray | None = None
    frames: np.ndarray | None = None
    more: bool = False

    @staticmethod
    def packed(texts: Sequence[Qwen3Inputs]) -> tuple[TalkerInputs, np.ndarray | None, np.ndarray | None]:
        """Join what texts read before their speech: layouts, speakers (N, D) and frames (Q, ΣF), of those
        texts that have them.
        """
        layouts = [text.layout for text in texts]
        speakers = [text.speaker for text in texts if text.speaker is not None]
        frames = [text.frames for text in texts if text.frames is not None]
        ids = {
            name: np.concatenate([getattr(layout, name) for layout in layouts]) for name in ("text", "codec")
        }
        return (
            replace(layouts[0], **ids),
            np.stack(speakers) if speakers else None,
            np.concatenate(frames, axis=1) if frames else None,
        )

    @property
    def ids(self) -> tuple[int, ...]:
        return self.layout.trailing

    @property
    def positions(self) -> int:
        return len(self.layout.text)

    def waits(self, text: BatchText) -> bool:
        """Return True if the text that goes with the last frame has not come."""
        return text.more and text.steps > len(text.ids)

    def given(self, text: BatchText) -> tuple[int]:
        """Return the id of the text that goes with the last frame."""
        step = text.steps - 1
        return (text.ids[step] if 0 <= step < len(text.ids) else self.layout.padding,)

    def read_with(self, frames: int) -> np.ndarray:
        """Return the text ids that are read with the first frames, (T,) int32."""
        trailing = self.layout.trailing[:frames]
        return np.array([*trailing, *[self.layout.padding] * (frames - len(trailing))], np.int32)

"""Types of the bodies: the type, bounds and words of each field, for its check and for the description."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    GetPydanticSchema,
    InstanceOf,
    WithJsonSchema,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError, core_schema
from starlette.datastructures import UploadFile

from mlx_port.commands.serve.errors import LONGEST_NAME
from mlx_port.commands.serve.names import DEFAULT_VOICE
from mlx_port.commands.serve.settings import Limits
from tts_core.audio.formats.names import FORMATS, Format
from tts_core.errors import NotFoundError
from tts_core.options import MOST_FRAMES
from tts_core.printable import one_line
from tts_core.prompt import Prompt
from tts_core.serving.voices import AGREED
from tts_core.text.checks import check_characters

MOST_CODES = 1 << 18  # of a prompt; far more than any model's window
MOST_CUES = 10_000
MOST_TIME = 360_000  # seconds: two digits of hours
RATES = (8000, 48_000)  # Hz, of sound that is asked for
CAPTIONS = {"srt": "application/x-subrip", "vtt": "text/vtt"}
UNKNOWN = "unknown_field"  # an error of our own
OF_ANSWERS = ("stream_format", "stream", "pieces")  # fields that a WebSocket has not
MESSAGES = ("text", "end", "cancel")  # of a WebSocket, after its start
ONCE = ("input", "model", "voice", "response_format", "prompt", *OF_ANSWERS)


def one_of(names: Iterable[str]) -> GetPydanticSchema:
    """Mark a field that takes one of some names."""
    return GetPydanticSchema(lambda *_: core_schema.literal_schema([*names]))


def filled(text: str) -> str:
    """Refuse a text without words."""
    if not text.strip():
        raise ValueError("empty; give the text to speak")
    return text


def fragment(text: Any) -> str:
    """Take a part of a text, which may end between the halves of a surrogate pair: pydantic's str may not."""
    if not isinstance(text, str):
        raise ValueError("not a string")
    return text


def installed(name: str) -> str:
    """Refuse a format whose library is missing."""
    try:
        FORMATS[name].check()
    except NotFoundError as fault:
        raise ValueError(str(fault)) from None
    return name


class Body(BaseModel):
    """A JSON object; null is no value."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, strict=True, extra="forbid", protected_namespaces=()
    )

    @model_validator(mode="before")
    @classmethod
    def _given(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        for name in body:
            if name not in cls.model_fields and cls.model_config.get("extra") == "forbid":
                raise PydanticCustomError(UNKNOWN, "no such field", {"names": [name, *cls.model_fields]})
        return {one_line(name): value for name, value in body.items() if value is not None}


class PromptBody(Body):
    """Speech to continue: its words, and [[a codebook's codes], ...]."""

    text: str
    codes: Annotated[
        list[Annotated[list[Annotated[int, Field(ge=0, lt=1 << 16)]], Field(min_length=1), FailFast()]],
        Field(min_length=1),
        FailFast(),
    ]

    @field_validator("codes")
    @classmethod
    def _square(cls, codes: list[list[int]]) -> list[list[int]]:
        if len({len(row) for row in codes}) > 1 or len(codes) * len(codes[0]) > MOST_CODES:
            raise ValueError("its lists are of unequal lengths, or too long")
        return codes


def read_prompt(body: PromptBody) -> Prompt:
    """The prompt of a body. The model checks the shape and range of its codes."""
    return Prompt.of(codes=np.array(body.codes, np.int32), text=body.text)


def prompt_json(codes: np.ndarray, text: str) -> dict[str, Any]:
    """Write a prompt as a body has it. codes: (Q, T) int32."""
    return {"text": text, "codes": codes.tolist()}


def _voice(value: Any) -> str:
    """Read a voice, a name or {"id": name}."""
    if isinstance(value, dict):
        if set(value) != {"id"}:
            raise ValueError('an object has one field, "id"')
        value = value["id"]
    if not isinstance(value, str) or not value.strip() or len(value) > LONGEST_NAME:
        raise ValueError('give a name of GET /v1/audio/voices, or {"id": name}')
    return value


def recording_bytes(value: str) -> bytes:
    """Decode a recording. Raises ValueError for what is no base64, an address or a path among it."""
    scheme = re.match(r"([a-z][a-z0-9+.-]*):", value, re.IGNORECASE)
    if scheme and scheme[1].lower() != "data":
        raise ValueError(f"the server fetches no {scheme[1][:20]}: address; send the file as base64")
    head, comma, data = value.partition(",") if scheme else ("", ",", value)
    if not comma or (scheme and not head.lower().endswith(";base64")):
        raise ValueError("not a data: URL in base64; write data:audio/wav;base64,...")
    try:
        found = base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("not base64, and the server opens no path; send the file as base64") from None
    if not found:
        raise ValueError("empty; send a sound file as base64")
    return found


FILE = {"type": "string", "format": "binary"}
VOICE = {"anyOf": [{"type": "string"}, {"type": "object", "properties": {"id": {"type": "string"}}}]}
Ignored = Annotated[Any, Field(description="Ignored, with a warning.")]


class SpeechBody(Body):
    """A speech that is asked for. Those of a model, and of none, are its `model_extra`."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")

    input: str = Field(description="The text to speak.")
    model: str | None = Field(
        None, min_length=1, max_length=200, description="A name of /v1/models; one of OpenAI's is the first."
    )
    voice: Annotated[str, BeforeValidator(_voice), WithJsonSchema(VOICE)] = Field(
        DEFAULT_VOICE, description="A name of /v1/audio/voices."
    )
    response_format: Annotated[str, one_of(FORMATS), AfterValidator(installed)] = "mp3"
    speed: float = Field(
        1.0, ge=0.25, le=4, description="Of the speech; beyond 0.5 to 2 that bound, with a warning."
    )
    instructions: str = Field("", description="Words on how to speak, for a model that reads such.")
    stream_format: Annotated[str, one_of(("audio", "sse"))] = "audio"
    stream: bool = Field(True, description="False: the answer is sent when it is complete.")
    pieces: bool = Field(False, description="With sse: an event for each piece of the text.")
    prompt: PromptBody | None = Field(None, description="Speech to continue.")
    ref_audio: Annotated[str, AfterValidator(lambda value: recording_bytes(value) and value)] | None = Field(
        None, description="A recording of the voice: a sound file as a data: URL or base64."
    )
    ref_text: str | None = Field(None, description="The words of the recording.")
    language: str | None = Field(None, max_length=40, description="Name or ISO code, as english or en.")
    lang_code: str | None = Field(None, max_length=40, description="The same as language.")
    max_new_tokens: int | None = Field(None, ge=1, le=MOST_FRAMES, description="Most frames of the speech.")
    sample_rate: int | None = Field(None, ge=RATES[0], le=RATES[1], description="Of the sound, in Hz.")
    task_type: Ignored = None
    non_streaming_mode: Ignored = None

    @field_validator("instructions", "language", "lang_code", "ref_text", mode="after")
    @classmethod
    def _is_empty(cls, text: str) -> str:
        return "" if text is not None and not text.strip() else text

    @field_validator("pieces")
    @classmethod
    def _events(cls, pieces: bool, found: Any) -> bool:
        if pieces and found.data.get("stream_format") != "sse":
            raise ValueError("they are events, so send stream_format sse, too")
        return pieces

    @property
    def form(self) -> Format:
        """Format of the sound."""
        return FORMATS[self.response_format]

    @property
    def sse(self) -> bool:
        """True for events."""
        return self.stream_format == "sse"

    @property
    def whole(self) -> bool:
        """True for an answer that is sent when it is complete."""
        return not (self.stream or self.sse)

    @property
    def rest(self) -> dict[str, Any]:
        """Fields for the model, by name: those that were given."""
        return {name: value for name, value in self if name in self.model_fields_set and name not in ONCE}


class WordBody(Body):
    """A word and its times, in seconds."""

    text: str
    start: float = Field(ge=0, lt=MOST_TIME)
    end: float = Field(ge=0, lt=MOST_TIME)

    @field_validator("text")
    @classmethod
    def _characters(cls, text: str) -> str:
        check_characters("text", text)
        return text

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.end < self.start:
            raise ValueError("ends before it begins")
        return self


class CueBody(WordBody):
    """A cue and its times, with those of its words."""

    words: Annotated[list[WordBody], FailFast()] = Field([], max_length=MOST_CUES)


class CaptionsBody(Body):
    """Cues to write in a format, in the order of their times."""

    format: Annotated[str, one_of(CAPTIONS)]
    cues: Annotated[list[CueBody], FailFast()] = Field(min_length=1, max_length=MOST_CUES)

    @field_validator("cues")
    @classmethod
    def _in_order(cls, cues: list[CueBody]) -> list[CueBody]:
        for index, (cue, after) in enumerate(pairwise(cues), start=1):
            if after.start < cue.start:
                raise ValueError(f"cue {index} begins before the one before it")
        return cues


class BatchBody(Body):
    """Several speeches."""

    items: list[SpeechBody] = Field(min_length=1)


class VoiceForm(Body):
    """A voice to add: recordings, a transcript for each or none, consent, and a note such as who gave it."""

    name: str
    audio_sample: Annotated[
        list[Annotated[InstanceOf[UploadFile], WithJsonSchema(FILE)]], Field(min_length=1)
    ]
    transcript: list[str] = []
    consent: str = Field(description=f"One of {', '.join(AGREED)}.")
    consent_note: str | None = None


class EncodeQuery(Body):
    """The query of an encoding."""

    response_format: Annotated[str, one_of(FORMATS), AfterValidator(installed)] = "mp3"


class Bodies(NamedTuple):
    """The types of a server, whose limits they have."""

    speech: type[SpeechBody]
    batch: type[BatchBody]
    captions: type[CaptionsBody]
    voice: type[VoiceForm]
    messages: dict[str, type[Body]]  # by MESSAGES


@cache
def bodies(limits: Limits, batch: int) -> Bodies:
    """Give the types the limits of a server. batch: most items of one."""
    text: Any = Annotated[str, Field(max_length=limits.text)]
    words: Any = Annotated[text, AfterValidator(filled)]

    def limited(name: str, base: type[Body], **types: Any) -> Any:
        """The type with other types of some fields."""
        changed: Any = {field: (kind, base.model_fields[field]) for field, kind in types.items()}
        return create_model(name, __base__=base, **changed)

    prompt = limited("Prompt", PromptBody, text=words)
    speech = limited("Speech", SpeechBody, input=words, instructions=text, prompt=prompt | None)
    cue = limited("Cue", CueBody, text=text, words=list[limited("Word", WordBody, text=text)])
    items = Annotated[list[speech], Field(max_length=batch), FailFast()]
    schema = {"type": "string", "maxLength": limits.message}
    spoken = Annotated[Any, AfterValidator(fragment), WithJsonSchema(schema)]
    messages: dict[str, type[Body]] = {}
    for kind in MESSAGES:
        own: dict[str, Any] = {"type": (Annotated[str, one_of([kind])], ...)}
        own |= {"text": (spoken, ...)} if kind == "text" else {}
        messages[kind] = create_model(f"Stream-{kind}", __base__=Body, **own)
    return Bodies(
        speech,
        limited("Batch", BatchBody, items=items),
        limited("Captions", CaptionsBody, cues=list[cue]),
        limited("Voice", VoiceForm),
        messages,
    )

"""Requests of programs that speak OpenAI's route, written from the pages that describe them: a row each."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import soundfile

from tests.mlx_port.commands.serve.served import recording

CUSTOM, DESIGN, BASE, DIA = "Qwen/CustomVoice", "Qwen/VoiceDesign", "Qwen/Base", "nari-labs/Dia"
PCM = "audio/pcm"
BENCH = "nari-labs' `tts_bench`"


def sound_file() -> bytes:
    """A recording of a voice, as WAV."""
    file = io.BytesIO()
    soundfile.write(file, *recording(), format="WAV")
    return file.getvalue()


CLONED = {
    "ref_audio": "data:audio/wav;base64," + base64.b64encode(sound_file()).decode(),
    "ref_text": "Some twenty words of hers, more or less.",
}
SAMPLED = {"temperature": 0.8, "top_p": 0.95, "top_k": 40, "repetition_penalty": 1.1}


@dataclass(frozen=True)
class Row:
    """A request.

    client: as docs/use/clients.md names it.
    model: that is served; its name is sent where the body has none.
    body: besides the text.
    kind: media type of the answer.
    options: of the model, that the body sets, by name.
    ignored: fields that the answer warns of.
    """

    client: str
    model: str
    body: Mapping[str, Any]
    kind: str = "audio/mpeg"
    options: Mapping[str, Any] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()


def bench(form: str, **more: Any) -> Row:
    """A request of tts_bench for one of its targets."""
    body = {"voice": "vivian", "language": "English", "stream": True, "non_streaming_mode": False, **more}
    options = {"language": "English", "voice": "vivian"}
    kind = PCM if form == "pcm" else f"audio/{form}"
    return Row(BENCH, CUSTOM, {**body, "response_format": form}, kind, options, ("non_streaming_mode",))


_dated = {"model": "gpt-4o-mini-tts-2025-12-15", "voice": {"id": "marin"}, "speed": 4.0}
_dated |= {"instructions": "Calm."}
_opus = {"voice": "alloy", "instructions": "Calm.", "speed": 0.25, "response_format": "opus"}
_calm = {"instruct": "Calm.", "voice": "vivian", "speed": 0.5}
_audio = {"voice": "vivian", "speed": 1.0, "lang_code": "en", "instruct": "Calm.", "response_format": "wav"}
_audio |= {"stream": True, "streaming_interval": 2.0, "max_tokens": 1200, **SAMPLED}
_read = {"language": "english", "instruct": "Calm.", **SAMPLED}
_design = {"task_type": "VoiceDesign", "instructions": "A warm voice.", "language": "Auto"}
_base = {"task_type": "Base", "max_new_tokens": 2048, "initial_codec_chunk_frames": 2, **CLONED}
_base |= {"x_vector_only_mode": False, "stream": True, "stream_format": "audio", "response_format": "pcm"}
_unread = ("task_type", "initial_codec_chunk_frames", "x_vector_only_mode")
_sampled = {"seed": 7, "max_new_tokens": 900, "response_format": "flac", **SAMPLED}
_cloned = {"stream": True, "response_format": "pcm", "token_count": 90, **CLONED}

ROWS = (
    Row("OpenAI, any", DIA, {"model": "tts-1-hd", "voice": "onyx", "speed": 2}, options={"speed": 2.0}),
    Row("OpenAI, any", DIA, _dated, options={"speed": 2.0}, ignored=("instructions", "speed")),
    Row("OpenAI, any", CUSTOM, _opus, "audio/ogg", _calm, ("speed",)),
    Row("Open WebUI", DIA, {"model": "tts-1", "voice": "alloy"}),
    Row("SillyTavern", DIA, {"model": "tts-1", "voice": "nova", "response_format": "mp3", "speed": 1}),
    Row("mlx-audio", CUSTOM, _audio, "audio/wav", _read, ("streaming_interval", "max_tokens")),
    Row("mlx-audio", BASE, {"response_format": "mp3", **CLONED}),
    Row("mlx-audio", DIA, {"lang_code": "en", "stream": False}, ignored=("lang_code",)),
    Row("vLLM-Omni", CUSTOM, {"voice": "vivian", "language": "English"}, options={"language": "English"}),
    Row("vLLM-Omni", DESIGN, _design, options={"instruct": "A warm voice."}, ignored=("task_type",)),
    Row("vLLM-Omni", BASE, _base, PCM, {"max_frames": 2048}, _unread),
    Row("vLLM-Omni", CUSTOM, {"stream_format": "sse", "response_format": "pcm"}, "text/event-stream"),
    Row("SGLang-Omni", CUSTOM, _sampled, "audio/flac", {"seed": 7, "max_frames": 900, **SAMPLED}),
    Row("SGLang-Omni", BASE, _cloned, PCM, ignored=("token_count",)),
    bench("pcm"),  # of VoxServe and Nari (HTTP)
    bench("pcm", stream_format="audio"),  # of vLLM-Omni
    bench("pcm", temperature=0.2),  # of SGLang-Omni, with a --request-param
    bench("wav", sample_rate=24000),  # of M*, with a --request-param
)

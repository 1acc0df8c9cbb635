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
PCM = "audio/pcm;rate=24000;channels=1"


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
SAMPLING = tuple(SAMPLED)


@dataclass(frozen=True)
class Row:
    """A request.

    client: as docs/use/clients.md names it.
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


def bench(target: str, model: str = CUSTOM, **more: Any) -> Row:
    """A request of tts_bench for one kind of server."""
    body = {"voice": "vivian", "language": "English", "stream": True, "non_streaming_mode": False}
    form = {"response_format": "wav" if target == "M*" else "pcm"}
    return Row(
        "nari-labs' `tts_bench`",
        model,
        {"model": model, **body, **form, **more},
        "audio/wav" if target == "M*" else PCM,
        {"language": "English", "voice": "vivian"},
        ("non_streaming_mode",),
    )


ROWS = (
    Row("OpenAI, any", DIA, {"model": "tts-1-hd", "voice": "onyx", "speed": 2}, options={"speed": 2.0}),
    Row(
        "OpenAI, any",
        DIA,
        {
            "model": "gpt-4o-mini-tts-2025-12-15",
            "voice": {"id": "marin"},
            "instructions": "Calm.",
            "speed": 4.0,
        },
        options={"speed": 2.0},
        ignored=("instructions", "speed"),
    ),
    Row(
        "OpenAI, any",
        CUSTOM,
        {
            "model": CUSTOM,
            "voice": "alloy",
            "instructions": "Calm.",
            "speed": 0.25,
            "response_format": "opus",
        },
        "audio/ogg",
        {"instruct": "Calm.", "speed": 0.5, "voice": "vivian"},
        ("speed",),
    ),
    Row("Open WebUI", DIA, {"model": "tts-1", "voice": "alloy"}),
    Row(
        "mlx-audio",
        CUSTOM,
        {
            "model": CUSTOM,
            "voice": "vivian",
            "speed": 1.0,
            "lang_code": "en",
            "instruct": "Calm.",
            "response_format": "wav",
            "stream": True,
            "streaming_interval": 2.0,
            "max_tokens": 1200,
            **SAMPLED,
        },
        "audio/wav",
        {"language": "english", "instruct": "Calm.", **SAMPLED},
        ("streaming_interval", "max_tokens"),
    ),
    Row("mlx-audio", BASE, {"model": BASE, "response_format": "mp3", **CLONED}),
    Row("mlx-audio", DIA, {"model": DIA, "lang_code": "en", "stream": False}, ignored=("lang_code",)),
    Row(
        "vLLM-Omni",
        CUSTOM,
        {"model": CUSTOM, "voice": "vivian", "language": "English", "response_format": "wav"},
        "audio/wav",
        {"language": "English", "voice": "vivian"},
    ),
    Row(
        "vLLM-Omni",
        DESIGN,
        {"model": DESIGN, "task_type": "VoiceDesign", "instructions": "A warm voice.", "language": "Auto"},
        options={"instruct": "A warm voice.", "language": "Auto"},
        ignored=("task_type",),
    ),
    Row(
        "vLLM-Omni",
        BASE,
        {
            "model": BASE,
            "task_type": "Base",
            "max_new_tokens": 2048,
            "initial_codec_chunk_frames": 2,
            "x_vector_only_mode": False,
            "stream": True,
            "stream_format": "audio",
            "response_format": "pcm",
            **CLONED,
        },
        PCM,
        {"max_frames": 2048},
        ("task_type", "initial_codec_chunk_frames", "x_vector_only_mode"),
    ),
    Row(
        "vLLM-Omni",
        CUSTOM,
        {"model": CUSTOM, "stream": True, "stream_format": "sse", "response_format": "pcm"},
        "text/event-stream",
    ),
    Row(
        "SGLang-Omni",
        CUSTOM,
        {"model": CUSTOM, "seed": 7, "max_new_tokens": 900, "response_format": "flac", **SAMPLED},
        "audio/flac",
        {"seed": 7, "max_frames": 900, **SAMPLED},
    ),
    Row(
        "SGLang-Omni",
        BASE,
        {"model": BASE, "stream": True, "response_format": "pcm", "token_count": 90, **CLONED},
        PCM,
        ignored=("token_count",),
    ),
    bench("vLLM-Omni", stream_format="audio"),
    bench("SGLang-Omni", temperature=0.2),
    bench("VoxServe"),
    bench("M*"),
    bench("Nari (HTTP)"),
)

"""Speak with Pipecat's OpenAI service in a pipeline: URL, text, model, voice, format, instructions. Writes
16-bit samples.
"""

import asyncio
import sys

from pipecat.frames.frames import ErrorFrame, TTSAudioRawFrame, TTSSpeakFrame  # pyright: ignore[reportMissingImports]
from pipecat.pipeline.worker import PipelineParams  # pyright: ignore[reportMissingImports]
from pipecat.services.openai.tts import OpenAITTSService  # pyright: ignore[reportMissingImports]
from pipecat.tests.utils import run_test  # pyright: ignore[reportMissingImports]


async def main(url: str, text: str, model: str, voice: str, form: str, instructions: str) -> None:
    assert form == "pcm", "Pipecat asks for nothing else"
    settings = OpenAITTSService.Settings(model=model, voice=voice, instructions=instructions or None)
    speaker = OpenAITTSService(base_url=f"{url}/v1", api_key="unused", settings=settings)
    params = PipelineParams(audio_out_sample_rate=24000)
    frames = [TTSSpeakFrame(text)]
    down, up = await run_test(speaker, frames_to_send=frames, pipeline_params=params, start_timeout=60)
    assert not [frame for frame in [*down, *up] if isinstance(frame, ErrorFrame)], up
    for frame in down:
        if isinstance(frame, TTSAudioRawFrame):
            sys.stdout.buffer.write(frame.audio)


asyncio.run(main(*sys.argv[1:]))

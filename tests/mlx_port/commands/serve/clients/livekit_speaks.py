"""Speak with LiveKit's OpenAI plugin: URL, text, model, voice, format, instructions. Writes 16-bit
samples.
"""

import asyncio
import sys

from livekit.plugins.openai import TTS  # pyright: ignore[reportMissingImports]


async def main(url: str, text: str, model: str, voice: str, form: str, instructions: str) -> None:
    more = {"instructions": instructions} if instructions else {}
    speaker = TTS(
        model=model, voice=voice, response_format=form, base_url=f"{url}/v1", api_key="unused", **more
    )
    frame = await speaker.synthesize(text).collect()
    await speaker.aclose()
    assert (frame.sample_rate, frame.num_channels) == (24000, 1)
    sys.stdout.buffer.write(bytes(frame.data))


asyncio.run(main(*sys.argv[1:]))

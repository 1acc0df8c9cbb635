"""Speak a text by a running `mlx-port serve`, into a file that grows while it is spoken. Needs `openai`.

python examples/client.py http://127.0.0.1:8000 "Hello." hello.mp3
"""

import sys

from openai import OpenAI

url, text, path = sys.argv[1:]
with (
    OpenAI(base_url=f"{url}/v1", api_key="unused") as client,
    client.audio.speech.with_streaming_response.create(model="tts-1", voice="alloy", input=text) as answer,
):
    answer.stream_to_file(path)

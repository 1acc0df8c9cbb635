"""Examples for `/docs`, a call of each route: lines for a shell with curl, and Python for the WebSocket."""

from __future__ import annotations

import json
import shlex

from mlx_port.commands.serve.names import MODELS

JSON = "-H 'content-type: application/json' -d "
TEXT = "Hello there, my friend."
FLAGS = {  # of curl, by path, besides those that have none
    "/v1/audio/speech": f"{JSON}'{json.dumps({'input': TEXT})}' --output hello.mp3",
    "/v1/audio/speech/batch": f"{JSON}'{json.dumps({'items': [{'input': TEXT}]})}'",
    "/v1/audio/encode": (
        "-H 'content-type: audio/pcm;rate=24000;channels=1' --data-binary @hello.pcm --output hello.mp3"
    ),
    "/v1/audio/captions": (
        f"{JSON}'{json.dumps({'format': 'srt', 'cues': [{'text': TEXT, 'start': 0, 'end': 1.5}]})}'"
    ),
    "/v1/audio/voices": (
        "-F name=anna -F consent=yes -F audio_sample=@anna.wav -F transcript='The words of the recording.'"
    ),
}
HEALTH = ("/health", "/ready")  # also for HTTP/1.0 without a host
OPEN = (*HEALTH, "/docs")  # without a key
STREAM = "/v1/audio/speech/stream"
SOCKET = """import json
import os

from websockets.sync.client import connect

start = {{"type": "start"{key}}}
with connect({address}, max_size=None) as live, open("hello.pcm", "wb") as file:
    for message in (start, {{"type": "text", "text": "{text}"}}, {{"type": "end"}}):
        live.send(json.dumps(message))
    for part in live:
        if isinstance(part, bytes):
            file.write(part)"""


def example(base: str, method: str, path: str, *, has_key: bool) -> str:
    """Write a call of a route.

    base: address of the server.
    method, path: of the route, as in OpenAPI.
    has_key: the server asks for a key.
    """
    base = base.rstrip("/")
    if path == STREAM:
        address, key = json.dumps(base.replace("http", "ws", 1) + STREAM), ""
        if has_key:
            key = ', "api_key": os.environ["MLX_PORT_API_KEY"]'
        socket = SOCKET.format(address=address, key=key, text=TEXT)
        return socket if has_key else socket.replace("import os\n", "")
    name = "anna" if "voices" in path else MODELS[0]
    words = ["curl " + shlex.quote(base + path.replace("{id}", name))]
    words += [FLAGS[path]] if method == "post" else ["-X DELETE"] if method == "delete" else []
    if has_key and path not in OPEN:
        words.append('-H "authorization: Bearer $MLX_PORT_API_KEY"')
    return " \\\n    ".join(words)

"""Examples for `/docs`, a call of each route: lines for a shell with curl, and Python for the WebSocket."""

from __future__ import annotations

import json
import shlex
from urllib.parse import quote

JSON = "-H 'content-type: application/json' -d "
TEXT = "Hello there, my friend."
CALLS = {  # method and path → flags of curl
    ("post", "/v1/audio/speech"): f"{JSON}'{json.dumps({'input': TEXT})}' --output hello.mp3",
    ("post", "/v1/audio/speech/batch"): f"{JSON}'{json.dumps({'items': [{'input': TEXT}]})}'",
    ("post", "/v1/audio/encode"): (
        "-H 'content-type: audio/pcm;rate=24000;channels=1' --data-binary @hello.pcm --output hello.mp3"
    ),
    ("post", "/v1/audio/captions"): (
        f"{JSON}'{json.dumps({'format': 'srt', 'cues': [{'text': TEXT, 'start': 0, 'end': 1.5}]})}'"
    ),
    ("get", "/v1/audio/voices"): "",
    ("post", "/v1/audio/voices"): (
        "-F name=anna -F consent=yes -F audio_sample=@anna.wav -F transcript='The words of the recording.'"
    ),
    ("delete", "/v1/audio/voices/{id}"): "-X DELETE",
    ("get", "/v1/audio/models"): "",
    ("get", "/v1/models"): "",
    ("get", "/v1/models/{id}"): "",
    ("get", "/health"): "",
    ("get", "/metrics"): "",
    ("get", "/openapi.json"): "",
    ("get", "/docs"): "",
}
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


def examples(base: str, model: str, *, has_key: bool) -> dict[tuple[str, str], str]:
    """Write an example for each method and path. base: address of the server.  model: name of one."""
    base = base.rstrip("/")
    socket = SOCKET.format(
        address=json.dumps(base.replace("http", "ws", 1) + STREAM),
        key=', "api_key": os.environ["MLX_PORT_API_KEY"]' if has_key else "",
        text=TEXT,
    )
    found = {("get", STREAM): socket if has_key else socket.replace("import os\n", "")}
    for (method, path), flags in CALLS.items():
        name = "anna" if "voices" in path else quote(model, safe="")
        words = ["curl " + shlex.quote(base + path.replace("{id}", name)), flags]
        if has_key and path not in ("/health", "/docs"):
            words.append('-H "authorization: Bearer $MLX_PORT_API_KEY"')
        found[method, path] = " \\\n    ".join(filter(None, words))
    return found

"""Work of `mlx-port mcp`: two tools over a loaded model or a running server."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from mlx_port.commands.loading_flags import Loading
from mlx_port.commands.opening import check_backend, load_pipeline, open_model
from mlx_port.commands.output import choose_output
from tts_core.errors import GenerationError, SpeechError
from tts_core.models import MODELS
from tts_core.serving.voices import VoiceStore, built_in, fitted, voices_folder


class Local:
    """A model of this process, loaded at the first text. path: None is the embedded voice."""

    def __init__(self, path: str | None):
        check_backend("mlx")
        self._parts = open_model(path, Loading())
        self._spec = MODELS[str(self._parts.model)].of(self._parts.configs)
        self._pipeline: Any = None

    def speak(self, text: str, voice: str | None, options: dict[str, Any]) -> tuple[np.ndarray, int]:
        """Speak a text: (L,) float32 samples and their rate in Hz. Raises SpeechError."""
        store, prompt = VoiceStore(voices_folder()), None
        if voice is not None:
            if own := built_in(voice, self._spec, store.names()):
                options = {**options, "voice": own}
            else:
                prompt = fitted(store.prompt(voice), voice, self._spec)
        if self._pipeline is None:
            self._pipeline = load_pipeline(self._parts, "mlx")
        spoken = self._pipeline.generate(text, prompt=prompt, **options)
        return spoken.audio, spoken.sample_rate

    def voices(self) -> list[str]:
        """List stored voices, then those of the model."""
        return [*VoiceStore(voices_folder()).names(), *self._spec.voices]


class Remote:
    """A running server. url: with or without /v1."""

    def __init__(self, url: str, key: str | None):
        self._base = url.rstrip("/").removesuffix("/v1") + "/v1/audio/"
        self._headers = {} if key is None else {"Authorization": f"Bearer {key}"}

    def speak(self, text: str, voice: str | None, options: dict[str, Any]) -> tuple[np.ndarray, int]:
        """Speak a text as Local does; the voice is alloy by default. Raises GenerationError."""
        import soundfile

        body = {"model": "tts-1", "input": text, "voice": voice or "alloy", "response_format": "wav"}
        sound = self._call("POST", "speech", json=body | options)
        samples, rate = soundfile.read(io.BytesIO(sound), dtype="float32")
        return samples, rate

    def voices(self) -> list[str]:
        """List the server's voices."""
        return [load["id"] for load in json.loads(self._call("GET", "voices"))["data"]]

    def _call(self, method: str, route: str, **body: Any) -> bytes:
        """Return the answer's body. Raises GenerationError with what the server said."""
        import httpx2  # pyright: ignore[reportMissingImports]

        try:
            answer = httpx2.request(
                method,
                self._base + route,
                headers=self._headers,
                timeout=httpx2.Timeout(600, connect=5),
                **body,
            )
        except httpx2.HTTPError as error:
            raise GenerationError(f"url: {self._base} does not answer ({error}); is it running?") from None
        if answer.status_code != 200:
            raise GenerationError(f"url: the server answered {answer.status_code}: {answer.text:.300}")
        return answer.content


def run(model: str | None, url: str | None, key: str | None) -> None:
    """Serve stdin and stdout until stdin ends."""
    from mcp.server.mcpserver import MCPServer  # pyright: ignore[reportMissingImports]
    from mcp.server.mcpserver.exceptions import ToolError  # pyright: ignore[reportMissingImports]

    speaker: Local | Remote = Local(model) if url is None else Remote(url, key)
    server = MCPServer("mlx-port", log_level="WARNING")
    worker = ThreadPoolExecutor(1)  # MLX's arrays stay on the thread that made them

    async def work(function: Callable[..., Any], *given: Any) -> Any:
        try:
            return await asyncio.get_running_loop().run_in_executor(worker, function, *given)
        except SpeechError as error:
            raise ToolError(str(error)) from None

    @server.tool()
    async def speak(
        text: str,
        voice: str | None = None,
        output: str | None = None,
        play: bool = False,
        seed: int | None = None,
        speed: float | None = None,
    ) -> dict[str, Any]:
        """Speak a text to a sound file (output, else speech.wav or the next free name), or play it.

        voice: a name of the tool voices. speed: 1 is the model's own. Returns the path and seconds.
        """
        options = {name: value for name, value in (("seed", seed), ("speed", speed)) if value is not None}
        return await work(_spoken, speaker, text, voice, output, play, options)

    @server.tool()
    async def voices() -> list[str]:
        """List the names that speak takes as voice."""
        return await work(speaker.voices)

    server.run("stdio")


def _spoken(
    speaker: Local | Remote,
    text: str,
    voice: str | None,
    output: str | None,
    play: bool,
    options: dict[str, Any],
) -> dict[str, Any]:
    """Speak, write and play. The place is checked before; stdout is the protocol's, so '-' is refused."""
    if output == "-":
        raise GenerationError("output: stdout carries the protocol; give a file")
    target = choose_output(output, None, play=play)
    if play:
        from mlx_port.commands.playback import Player, check_playback

        check_playback()
    samples, rate = speaker.speak(text, voice, options)
    path = None if target is None else str(target.write(samples, rate).absolute())
    if play:
        with Player(rate) as player:
            player.write(samples)
    return {"path": path, "seconds": round(len(samples) / rate, 3)}

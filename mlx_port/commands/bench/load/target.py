"""Ask a server for one speech, and time what comes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mlx_port.commands.bench.load.figures import Answer
from mlx_port.commands.bench.load.post import Address, Reply, post
from mlx_port.commands.bench.load.sound import meter
from tts_core.errors import GenerationError, NotFoundError, UsageError
from tts_core.printable import one_line

_NO_SOUND = {"no sound": "has no sound", "silent": "is silent"}
MESSAGE = 2000  # bytes of an error's body that are read


@dataclass(frozen=True)
class LoadTarget:
    """A server and what every request asks of it.

    form: "pcm" or "wav".
    rate: of pcm in Hz, None for the answer's own.
    timeout: seconds from a request's planned arrival to its last byte.
    more: further fields of the body.
    """

    address: Address
    model: str
    voice: str
    form: str
    timeout: float
    rate: int | None = None
    key: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    def body(self, text: str) -> bytes:
        """The request's body."""
        body = {"model": self.model, "input": text, "voice": self.voice, "response_format": self.form}
        return json.dumps(body | dict(self.more)).encode()

    async def check(self, text: str) -> Answer:
        """Speak a text before anything is measured. Raises an error that says what is wrong."""
        due = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self.timeout), post(self.address, self.body(text), self.key) as reply:
                if reply.status != 200:
                    raise _refused(reply.status, await _message(reply))
                answer = await self._receive(reply, due, due)
        except TimeoutError:
            raise NotFoundError(
                f"server: {self.address.url} did not finish a speech in {self.timeout:g} s; is it loading? "
                "give a larger --timeout"
            ) from None
        except EOFError:
            raise GenerationError("server: the connection ended before the speech did") from None
        except OSError as error:
            why = error.strerror or str(error)
            raise NotFoundError(
                f"server: {self.address.url} cannot be reached ({why}); start it, or check the address"
            ) from None
        except ValueError as error:
            if isinstance(error, UsageError):
                raise
            raise GenerationError(
                f"server: the answer cannot be read as {self.form} over HTTP: {one_line(str(error))}"
            ) from None
        if answer.error is not None:
            raise GenerationError(f"server: the answer {_NO_SOUND[answer.error]}")
        return answer

    async def send(self, text: str, due: float) -> Answer:
        """Speak a text; a failure is an answer, too. due: moment of its arrival, by the loop's clock."""
        now = asyncio.get_running_loop().time
        sent, began = now(), False
        arrived: list[tuple[float, float]] = []
        try:
            async with (
                asyncio.timeout_at(due + self.timeout),
                post(self.address, self.body(text), self.key) as reply,
            ):
                if reply.status != 200:
                    return Answer(due, sent, now(), error=str(reply.status))
                began = True
                return await self._receive(reply, due, sent, arrived)
        except TimeoutError:
            error = "timeout"
        except EOFError:
            error = "cut off"
        except OSError:
            error = "cut off" if began else "connection"
        except ValueError:
            error = "unreadable"
        return Answer(due, sent, now(), tuple(arrived), error)

    async def _receive(
        self, reply: Reply, due: float, sent: float, arrived: list[tuple[float, float]] | None = None
    ) -> Answer:
        now: Callable[[], float] = asyncio.get_running_loop().time
        sound, arrived = meter(self.form, reply.headers, self.rate), [] if arrived is None else arrived
        async for piece in reply.parts():
            if seconds := sound.add(piece):
                arrived.append((now(), seconds))
        error = None if sound.audible is not None else "silent" if arrived else "no sound"
        return Answer(due, sent, now(), tuple(arrived), error, sound.audible or 0.0)


async def _message(reply: Reply) -> str:
    """The message of an error's body, in OpenAI's schema or as it is."""
    body = b""
    async for piece in reply.parts():
        body += piece
        if len(body) > MESSAGE:
            break
    text = body[:MESSAGE].decode("utf-8", "replace")
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return text.strip()


def _refused(status: int, message: str) -> Exception:
    said = f"server: it answers {status}" + (f" ({one_line(message)})" if message else "")
    if status in (401, 403):
        return UsageError(f"{said}; give its key with --api-key or MLX_PORT_API_KEY")
    if 400 <= status < 500:
        return UsageError(f"{said}; check the address, --model, --voice, --format and --body")
    return GenerationError(f"{said}; its own log may say more")

"""Events of the Wyoming protocol, read within bounds: a line of JSON, then its data, then a payload."""

from __future__ import annotations

import json
from asyncio import IncompleteReadError, StreamReader

from wyoming.event import Event
from wyoming.tts import SynthesizeChunk

from mlx_port.commands.serve.body import parse
from mlx_port.commands.serve.errors import ApiError, invalid


async def read_event(reader: StreamReader, most: int) -> Event | None:
    """Read the next event; None at the end. A payload is dropped: no event that we take has one.

    most: bytes of each of its three parts; the reader's own limit bounds the line.
    Raises ApiError 400 for what is no event, and 413.
    """
    try:
        line = await reader.readline()
    except ValueError:
        raise _too_large(most) from None
    if not line:
        return None
    head = parse(line, "event")
    kind, data = head.get("type"), head.get("data") or {}
    if not isinstance(kind, str) or not isinstance(data, dict):
        raise invalid(None, "event: without a type, or with data that is no object", "invalid_event")
    try:
        data |= parse(await _part(reader, head, "data_length", most) or b"{}", "event")
        await _part(reader, head, "payload_length", most)
        if not SynthesizeChunk.is_type(kind):  # a text may be cut there
            json.dumps(data, ensure_ascii=False).encode()
    except IncompleteReadError:
        return None
    except (UnicodeEncodeError, RecursionError):  # half of a surrogate pair cannot be sent back
        raise invalid(None, "event: its data cannot be written as UTF-8", "invalid_event") from None
    return Event(kind, data)


async def _part(reader: StreamReader, head: dict[str, object], name: str, most: int) -> bytes:
    length = head.get(name) or 0
    if not isinstance(length, int) or length < 0:
        raise invalid(None, f"event: {name} is no length", "invalid_event")
    if length > most:
        raise _too_large(most)
    return await reader.readexactly(length)


def _too_large(most: int) -> ApiError:
    return ApiError(413, f"event: more than {most} bytes", code="too_large")

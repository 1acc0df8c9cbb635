"""Clients for a soak whose text arrives in pieces: some talk to the end, some leave, some misbehave."""

from __future__ import annotations

import random
import socket
import time
from contextlib import suppress
from itertools import pairwise
from typing import Any

from websockets.exceptions import ConnectionClosed

from tests.mlx_port.commands.serve.live.client import Client, client
from tests.mlx_port.commands.serve.live.test_websocket import expected, heard
from tests.mlx_port.commands.serve.served import SOON

KINDS = ("live", "leave", "cancel", "bad", "silent", "megabyte", "flood")
WEIGHTS = (50, 20, 8, 8, 4, 5, 5)
BAD: list[dict[str, Any]] = [
    {"kind": "text", "text": "early"},
    {"kind": "start", "voice": "nobody"},
    {"kind": "start", "speed": 5},
    {"kind": "strat"},
]


def sentences(draw: random.Random) -> list[str]:
    """One to five sentences of words, long enough to be pieces of their own."""
    return [
        " ".join(
            [
                f"Word{draw.randrange(1000)}",
                *(f"word{draw.randrange(1000)}" for _ in range(draw.randint(3, 8))),
            ]
        )
        + "."
        for _ in range(draw.randint(1, 5))
    ]


def fragments(draw: random.Random, text: str) -> list[str]:
    """Cut a text anywhere."""
    places = sorted({0, len(text), *(draw.randrange(len(text)) for _ in range(draw.randint(0, 12)))})
    return [text[start:stop] for start, stop in pairwise(places)]


def over_websocket(url: str, draw: random.Random) -> str:
    """Talk once; return the kind of client. Raises AssertionError for wrong sound."""
    kind, said = draw.choices(KINDS, WEIGHTS)[0], sentences(draw)
    with client(url) as found, suppress(ConnectionClosed):
        if kind == "bad":
            message = dict(draw.choice(BAD))
            found.send(message.pop("kind"), **message)
            found.end()
            assert [event["type"] for event in found.events] == ["error"]
            return kind
        if kind == "silent":
            found.end()
            return kind
        found.send("start", seed=draw.randrange(100))
        if kind == "megabyte":
            found.send("text", text="x" * (1 << 20))
        elif kind == "flood":
            for _ in range(2000):
                found.send("text", text="")
        else:
            _talk(found, draw, kind, said)
    return kind


def _talk(found: Client, draw: random.Random, kind: str, said: list[str]) -> None:
    pieces = fragments(draw, " ".join(said))
    stop = len(pieces) if kind == "live" else draw.randint(0, len(pieces))
    for piece in pieces[:stop]:
        found.send("text", text=piece)
        time.sleep(draw.uniform(0, 0.005))
    if kind == "leave":
        time.sleep(draw.uniform(0, 0.05))
        found.connection.socket.shutdown(socket.SHUT_RDWR)
        return
    found.send("end" if kind == "live" else "cancel")
    found.end()
    if kind == "live":
        assert found.events[-1] == {"type": "done", "finish_reason": "stop"}, found.events[-1]
        assert [event["text"] for event in found.events if event["type"] == "piece"] == said
        heard(found.sound, expected(*said))
    else:
        assert found.events[-1]["finish_reason"] in ("cancelled", "stop")


def over_wyoming(place: tuple[str, int], draw: random.Random) -> str:
    """The same in the Wyoming protocol."""
    from tests.mlx_port.commands.serve.wyoming.asking import streamed

    kind, said = draw.choices(KINDS, WEIGHTS)[0], sentences(draw)
    if kind == "live":
        heard(streamed(place, *fragments(draw, " ".join(said))), expected(*said))
        return kind
    with socket.create_connection(place, SOON) as raw, suppress(ConnectionError):
        if kind in ("bad", "megabyte"):
            raw.sendall(draw.choice([b"no event\n", b'{"type": 5}\n', b"x" * (1 << 20)]))
            while raw.recv(1 << 16):
                pass
        elif kind == "flood":
            raw.sendall(b'{"type": "describe"}\n' * 200)
        elif kind == "silent":
            raw.sendall(draw.choice([b"", b'{"type": "pi', b'{"type": "synthesize-start"}\n']))
            while raw.recv(1 << 16):
                pass
        else:
            raw.sendall(b'{"type": "synthesize", "data": {"text": "%s"}}\n' % " ".join(said).encode())
            time.sleep(draw.uniform(0, 0.05))
    return kind

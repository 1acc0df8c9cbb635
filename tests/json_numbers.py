"""Numbers that a JSON body can carry, valid and invalid, for any option."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from tts_core.options import Info, options_class

EDGES = (0, 1, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30, 10**400)
TINY = (5e-324, 1e-320, 1e-300, 1e-46, 1e-45, 1e-40, 1.2e-38, 1e-9, 9.9e-6, 1e-5)
LARGE = (3.4e38, 3.5e38, 1e39, 1.7e308, 1e16)
ODD = (
    *["true", "false", "NaN", "Infinity", "-Infinity", "1e309", "-1e309", "1e308", "-1e308", "1e400"],
    *["-0", "-0.0", "0.0", "0e9", "1.0", "1E2", "1e0", "2.0000000000000001", "1e-320", "1E-400", "-1e-320"],
    *["9223372036854775807", "9223372036854775808", "-9223372036854775809", "9223372036854775808.0"],
    *["18446744073709551615.0", "0.1e1", "1.5", "01", "+1", "1.", ".5", "0x1", '"1"', "1_000", "9" * 5000],
)


def json_numbers(known: Info, count: int, seed: int | str) -> list[int | float]:
    """Draw numbers, half of them near or in an option's range, each as JSON gives it back."""
    draw = random.Random(seed)
    low = max(known.low, known.above)
    ways: list[Callable[[], int | float]] = [
        lambda: draw.choice((1, -1)) * (draw.choice(EDGES) + draw.randint(-1, 1)),
        lambda: draw.choice((1, -1)) * draw.choice((*TINY, *LARGE)),
        lambda: draw.uniform(-10, 10),
        lambda: draw.getrandbits(draw.randint(1, 200)),
        lambda: draw.choice((known.low, known.above, known.high, 0.0, -0.0)),
        lambda: draw.uniform(low, known.high),
        lambda: low + (known.high - low) * 10 ** draw.uniform(-12, 0),
        lambda: draw.randint(int(low), int(known.high)),
        lambda: draw.randint(int(low), int(min(known.high, low + 9))),
        lambda: min(known.high, low + draw.choice(TINY)),
    ]
    numbers = [draw.choice(ways)() for _ in range(count)]
    return [json.loads(json.dumps(number if abs(number) != float("inf") else 1)) for number in numbers]


def json_literals(known: Info, count: int, seed: int | str) -> list[str]:
    """Write such numbers as clients do: also with a point or an exponent, and what is no number of JSON."""
    draw, written = random.Random(f"{seed} written"), list[str]()
    for number in json_numbers(known, count, seed):
        way = draw.random()
        if way < 0.1:
            written.append(draw.choice(ODD))
        elif way < 0.2 and isinstance(number, int):
            written.append(f"{number}.0")
        elif way < 0.2 or (way < 0.25 and abs(number) < 2**64):
            written.append(f"{number:.16e}")
        else:
            written.append(json.dumps(number))
    return written


def numeric_options(model: str) -> dict[str, Any]:
    """Fields of a model's options that take numbers."""
    taken = fields(options_class(model))
    return {field.name: field for field in taken if str(field.type).startswith(("int", "float"))}

"""Speech to continue, as JSON: {"text": its words, "codes": [[a codebook's codes], ...]}."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np

from mlx_port.commands.serve.errors import invalid
from tts_core.prompt import Prompt

MOST_CODES = 1 << 18  # far more than any model's window


def read_prompt(value: Any, most_text: int) -> Prompt:
    """Read a prompt of one reference. most_text: characters of its text.

    The model checks the shape and range of the codes. Raises ApiError 400.
    """
    if not isinstance(value, dict) or value.keys() != {"text", "codes"}:
        raise invalid("prompt", "prompt: give an object with text and codes, as an event of a piece has it")
    text, rows = value["text"], value["codes"]
    if not isinstance(text, str) or not text.strip() or len(text) > most_text:
        raise invalid("prompt", f"prompt: its text is not a string of 1 to {most_text} characters")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, list) for row in rows):
        raise invalid("prompt", "prompt: its codes are not a list of lists")
    if len({len(row) for row in rows}) > 1 or not rows[0] or len(rows) * len(rows[0]) > MOST_CODES:
        raise invalid("prompt", "prompt: its codes are of unequal lengths, empty, or too many")
    if not all(type(code) is int and 0 <= code < 1 << 16 for code in chain.from_iterable(rows)):
        raise invalid("prompt", "prompt: its codes are not whole numbers from 0 to 65535")
    return Prompt.of(codes=np.array(rows, np.int32), text=text)


def prompt_json(codes: np.ndarray, text: str) -> dict[str, Any]:
    """Write a prompt. codes: (Q, T) int32."""
    return {"text": text, "codes": codes.tolist()}

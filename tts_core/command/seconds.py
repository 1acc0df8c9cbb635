"""Type of the flags that take a number of seconds."""

from __future__ import annotations

import math
from typing import Any

import click


class Seconds(click.FloatRange):
    """More than 0 and at most `most` seconds. NaN, which click lets pass, is refused."""

    def __init__(self, most: float):
        super().__init__(0, most, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert a flag's text."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{number} is not a number of seconds.", param, ctx)
        return number

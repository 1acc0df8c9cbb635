"""Division of rows between processes: from --shard, or from the rank under mlx.launch."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from tts_core.errors import UsageError


class Division(NamedTuple):
    """One part of a division. part: counted from 0.  parts: their number."""

    part: int
    parts: int


def division(shard: str | None) -> Division:
    """Read "i/n"; without it, the rank and size of MLX's distributed group, if mlx.launch started this.

    Raises UsageError for another form, and for both at once.
    """
    launched = "MLX_RANK" in os.environ
    if shard is not None:
        if launched:
            raise UsageError("--shard: mlx.launch divides the rows already; leave it out")
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", shard)
        if match is None or not int(match[1]) < int(match[2]):
            raise UsageError(f"--shard: {shard!r} is not a part; the first of two is 0/2, the second 1/2")
        return Division(int(match[1]), int(match[2]))
    if launched:
        import mlx.core as mx

        group = mx.distributed.init()
        return Division(group.rank(), group.size())
    return Division(0, 1)

"""Table of the published layouts, and their recognition by tensor names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from converters.maps.layouts import Layout
from tts_core.config import FORMAT_VERSION
from tts_core.errors import CheckpointError


@cache
def layouts() -> Mapping[str, Layout]:
    """Return all published layouts by name. Imports the maps of all models and codecs."""
    from converters.maps import (
        dac,
        dia,
        dia2,
        encodec,
        mars5,
        mbd,
        metavoice,
        mimi,
        qwen3,
        qwen3_codec,
        vocos,
    )

    families = (dia, dia2, mars5, metavoice, qwen3, dac, encodec, vocos, mbd, mimi, qwen3_codec)
    return {name: layout for family in families for name, layout in family.LAYOUTS.items()}


def recognize(names: Sequence[str], config: Mapping[str, Any]) -> str | None:
    """Find the layout of most tensor names, at least of half of them; "mlx" by config.json."""
    written = config.get("weights_layout")
    if written is not None:
        if written != "mlx" or config.get("format_version") != FORMAT_VERSION:
            raise CheckpointError(
                f"config.json: weights_layout {written!r}, format_version {config.get('format_version')!r}: "
                "another version wrote this folder; convert the published model again"
            )
        return "mlx"
    counts = {
        name: sum(bool(re.match(layout.names, name)) for name in names) for name, layout in layouts().items()
    }
    best = max(counts, key=counts.__getitem__)
    return best if counts[best] and 2 * counts[best] >= len(names) else None

"""MetaVoice captured, on kernels."""

from __future__ import annotations

from typing import Any

from torch_ref.cuda.metavoice.decoder import make_slots


def forms(*codecs: Any) -> dict[str, Any]:
    """Return what MetaVoice's engine takes."""
    return {"make_slots": make_slots}

"""Origin of an MLX conversion that another program wrote, for messages: of which model, and by whom."""

from __future__ import annotations

import re

from converters.maps.layouts import Found
from tts_core.errors import SpeechError
from tts_core.files.regular import read_text
from tts_core.printable import one_line


def described(found: Found, what: str | None = None) -> str:
    """Return "an MLX conversion of X by Y", as far as the card, config.json and the hub's cache say.

    what: X, if known; None takes the card's base model, or config.json's type.
    """
    try:
        card = read_text(found.folder / "README.md")
    except (SpeechError, OSError):  # a card is optional
        card = ""
    made = re.search(r"converted to MLX format from\s+\[?`?([^\s`\]]+)", card, re.IGNORECASE)
    base = re.search(r"^base_model: *\n? *-? *[\"']?([\w./-]+)", card, re.MULTILINE)
    tool = re.search(r"using (mlx[\w-]*)", card) or re.search(
        r"^library_name: *([\w.-]+)", card, re.MULTILINE
    )
    owner = re.search(r"models--([\w.-]+?)--[^/]+/snapshots/", found.folder.as_posix())
    whom = tool or owner
    kind = found.json("config.json").get("model_type")
    model = what or next((match[1] for match in (made, base) if match), None) or kind
    by = f" by {whom[1]}" if whom else ""
    return one_line(f"an MLX conversion of {model or 'an unknown model'}{by}")


def is_conversion(found: Found) -> bool:
    """Return True for tensors that MLX wrote, but not convert-weights."""
    scales = any(name.endswith(".scales") for name in found.checkpoint.shapes)
    is_ours = "weights_layout" in found.json("config.json")
    return (scales or found.checkpoint.metadata.get("format") == "mlx") and not is_ours

"""What a converted folder's config.json holds beside the network's own configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FORMAT_VERSION = 1
ENVELOPE = ("model_type", "weights_layout", "format_version", "dtype", "quantization", "quantization_config")


def without_envelope(config: Mapping[str, Any]) -> dict[str, Any]:
    """The network's own configuration: what is left when the folder's bookkeeping is taken away."""
    return {name: value for name, value in config.items() if name not in ENVELOPE}

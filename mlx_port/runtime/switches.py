"""Settings of the environment that a Mac's owner may try: `mlx-port bench --sweep` times each. All are off
by default, because which of them pays differs from chip to chip.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import mlx.core as mx

from tts_core.errors import UsageError

KEYS, LAUNCHES = "MLX_PORT_KEYS", "MLX_PORT_LAUNCHES"
OPERATIONS, MEGABYTES = "MLX_MAX_OPS_PER_BUFFER", "MLX_MAX_MB_PER_BUFFER"  # MLX's own, of Metal
# the first and the last have none; 1000 and 400: ml-explore/mlx#4521, 2000: vllm-project/vllm-metal#637
SWEEP: tuple[dict[str, str], ...] = (
    {},
    {OPERATIONS: "1000"},
    {MEGABYTES: "400"},
    {OPERATIONS: "1000", MEGABYTES: "400"},
    {OPERATIONS: "2000", MEGABYTES: "2000"},
    {KEYS: "float32"},
    {LAUNCHES: "2"},
    {LAUNCHES: "4"},
    {},
)


def given() -> dict[str, str]:
    """Return the settings that this process has."""
    names = (OPERATIONS, MEGABYTES, KEYS, LAUNCHES)
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def named(settings: Mapping[str, str]) -> str:
    """Write settings as a shell does."""
    return " ".join(f"{name}={value}" for name, value in settings.items()) or "none"


def kind_of_keys(own: mx.Dtype) -> mx.Dtype:
    """Return the type in which a running batch holds keys and values: `own`, or float32."""
    return mx.float32 if _chosen(KEYS, ("", "float32")) else own


def launches() -> int:
    """Return the parts in which a step's layers are handed to the device: 1, 2 or 4."""
    return int(_chosen(LAUNCHES, ("", "1", "2", "4")) or 1)


def check_switches() -> None:
    """Raise UsageError, naming the variable, for a value that a model's step would refuse."""
    kind_of_keys(mx.float32)
    launches()


def _chosen(name: str, values: tuple[str, ...]) -> str:
    found = os.environ.get(name, "")
    if found not in values:
        raise UsageError(f"{name}: {found!r:.80} is none of {', '.join(filter(None, values))}; unset it")
    return found


class EarlyLaunch:
    """Hands a step's arrays to the device after some of its layers: it begins before the host is done.

    layers: of the step.
    """

    def __init__(self, layers: int):
        parts = launches()
        self.after = {layers * part // parts for part in range(1, parts)}

    def __call__(self, done: int, x: mx.array) -> None:
        """Launch x if so many layers are done."""
        if done in self.after:
            mx.async_eval(x)

"""Checks of codecs' configurations as published: the config.json of transformers' models."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from tts_core.config import mapping
from tts_core.errors import CheckpointError
from tts_core.printable import named

HARMLESS = (  # what any of them may state
    "architectures",
    "model_type",
    "dtype",
    "torch_dtype",
    "transformers_version",
    "_name_or_path",
    "initializer_range",
    "return_dict",
    "output_hidden_states",
    "output_attentions",
)


def published_fields(
    given: object,
    where: str,
    needed: Collection[str],
    fixed: Mapping[str, Any],
    unused: Collection[str],
    *,
    support: str,
) -> Mapping[str, Any]:
    """Return a config.json that has the needed and fixed names, and no unknown ones.

    fixed: the only supported values.
    unused: names that may be there, beside HARMLESS.
    support: what is supported, for the error.
    Raises CheckpointError naming all that is missing, or all that is unknown or not supported.
    """
    config = mapping(given, where)
    missing = [name for name in (*needed, *fixed) if name not in config]
    if missing:
        raise CheckpointError(f"{where}: {', '.join(missing)} missing")
    unknown = sorted(set(config) - {*needed, *fixed, *unused, *HARMLESS})
    faults = [f"unknown fields {named(unknown)}"] if unknown else []
    faults += [f"{name} {config[name]!r:.40}" for name, value in fixed.items() if config[name] != value]
    if faults:
        raise CheckpointError(f"{where}: {'; '.join(faults)}; {support}")
    return config

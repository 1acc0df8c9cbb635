"""Checks shared by all configurations, and the envelope of a converted folder's config.json."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, fields
from typing import Any, TypeVar, cast, get_type_hints

from tts_core.errors import CheckpointError
from tts_core.printable import named

FORMAT_VERSION = 2  # 2: conversion.json lists every file that was written
ENVELOPE = ("model_type", "weights_layout", "format_version", "dtype", "quantization", "quantization_config")
LARGEST = 2**31 - 1  # of sizes and rates
MODES, GROUP_SIZES = ("affine", "mxfp4", "mxfp8", "nvfp4"), (16, 32, 64, 128)  # of quantized layers
MOST_LAYERS = 1000  # or codebooks: a config.json is untrusted and must not make us list endless tensors

Configs = Mapping[str, object]  # kind of network → its configuration
Config = TypeVar("Config")


def config_of(configs: Configs, kind: str, cls: type[Config]) -> Config:
    """Return the configuration of a kind of network.

    Raises KeyError for a missing kind, TypeError for a configuration of another class.
    """
    found = configs[kind]
    if not isinstance(found, cls):
        raise TypeError(f"{kind}: expected a {cls.__name__}, found {found!r:.40}")
    return found


def mapping(value: object, where: str) -> Mapping[str, Any]:
    """Return `value` if it is a JSON object. Raises CheckpointError otherwise."""
    if not isinstance(value, Mapping):
        raise CheckpointError(f"{where}: expected an object, found {value!r:.40}")
    return value


def exact_fields(kind: type, given: object, where: str) -> dict[str, Any]:
    """Read the fields of dataclass `kind` from an object with exactly these; lists become tuples.

    Raises CheckpointError naming every unknown and every missing one.
    """
    given, names = mapping(given, where), {field.name for field in fields(kind)}
    unknown, missing = named(set(given) - names), named(names - set(given))
    if unknown or missing:
        faults = [f"unknown {unknown}"] * bool(unknown) + [f"missing {missing}"] * bool(missing)
        raise CheckpointError(f"{where}: {'; '.join(faults)}")
    return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}


class Schema:
    """A dataclass whose fields are our own schema, as a converted folder has it."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, as `reader` reads them."""
        return asdict(cast(Any, self))


def reader(kind: type[Config], where: str) -> Callable[[Mapping[str, Any]], Config]:
    """Return a function that reads our own schema; its error names every unknown and missing field.

    kind: a dataclass.
    where: the file, in messages.
    """
    return lambda given: kind(**exact_fields(kind, given, where))


def section(
    given: object, where: str, needed: Collection[str], unused: Collection[str], fixed: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return a section of a published config.json that has the needed names, and no unknown ones.

    unused: names that may be there.
    fixed: the only supported values, of names that may be missing.
    Raises CheckpointError naming all that is missing, unknown or not supported.
    """
    found = mapping(given, where)
    missing = [name for name in needed if name not in found]
    unknown = sorted(set(found) - {*needed, *unused, *fixed})
    other = [f"{name} {found[name]!r:.40}" for name in fixed if found.get(name, fixed[name]) != fixed[name]]
    faults = [f"missing {named(missing)}"] if missing else []
    faults += [f"unknown {named(unknown)}"] if unknown else []
    faults += [f"{', '.join(other)}; this variant is not supported"] if other else []
    if faults:
        raise CheckpointError(f"{where}: {'; '.join(faults)}")
    return found


def check_numbers(config: Any, where: str) -> None:
    """Check that every field annotated int, float or tuple[int, ...] contains positive numbers of that type.

    Raises CheckpointError naming all fields that do not.
    """
    faults, hints = [], get_type_hints(type(config), include_extras=True)
    for field in fields(config):
        value, hint = getattr(config, field.name), hints[field.name]
        values = value if hint == tuple[int, ...] and isinstance(value, tuple) else (value,)
        kind = next((kind for kind in ("layers", "codebooks") if field.name.endswith(kind)), None)
        if kind and isinstance(value, int) and value > MOST_LAYERS:
            raise CheckpointError(f"{where}: {value} {kind}; more than {MOST_LAYERS} are not supported")
        if len(values) > MOST_LAYERS:
            raise CheckpointError(
                f"{where}: {len(values)} {field.name}; more than {MOST_LAYERS} are not supported"
            )
        allowed = {int: int, tuple[int, ...]: int, float: int | float}.get(hint)
        if allowed and not all(
            isinstance(n, allowed) and not isinstance(n, bool) and 0 < n <= LARGEST for n in values
        ):
            faults.append(f"{field.name} {value!r:.40}")
    if faults:
        raise CheckpointError(
            f"{where}: {', '.join(faults)}: must be positive numbers up to {LARGEST}, whole where sizes"
        )


def check_quantization(given: Any, where: str) -> None:
    """Raise CheckpointError unless the envelope's entry is null, or a quantization with its exceptions."""
    if given is None:
        return
    stated = mapping(given, where)
    own = {name: stated.get(name) for name in ("group_size", "bits")}
    own["mode"] = stated.get("mode", "affine")
    for layer in (own, *(value for value in stated.values() if isinstance(value, Mapping))):
        mode, size, bits = layer.get("mode", "affine"), layer.get("group_size"), layer.get("bits")
        known = mode in MODES and type(size) is int and size in GROUP_SIZES
        if not known or type(bits) is not int or not 2 <= bits <= 8:
            raise CheckpointError(f"{where}: {layer!r:.120} is no known mode, group size and number of bits")


def without_envelope(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the network's own configuration, without the folder's envelope."""
    return {name: value for name, value in config.items() if name not in ENVELOPE}

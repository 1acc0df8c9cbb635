"""Configurations as declarations: each field says where a published file has it, and the rest follows.

`Config.read` reads a published file, `from_dict` and `to_dict` are our own schema. One error names all
unknown and missing names, values of another type or out of range, and unsupported variants; if there are
none of these, all faults between fields.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from functools import cache
from operator import attrgetter
from types import UnionType
from typing import (
    Annotated,
    Any,
    NamedTuple,
    Self,
    TypeVar,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from tts_core.errors import CheckpointError
from tts_core.printable import named

FORMAT_VERSION = 2  # 2: conversion.json lists every file that was written
ENVELOPE = ("model_type", "weights_layout", "format_version", "dtype", "quantization", "quantization_config")
LARGEST = 2**31 - 1  # of sizes and rates
MODES, GROUP_SIZES = ("affine", "mxfp4", "mxfp8", "nvfp4"), (16, 32, 64, 128)  # of quantized layers
MOST_LAYERS = 1000  # or codebooks: a config.json is untrusted and must not make us list endless tensors

# names without effect in any file that transformers saved: in a section, and in the whole
SAVED = ("model_type", "dtype", "torch_dtype", "transformers_version")
HARMLESS = (
    *("architectures", "_name_or_path", "initializer_range", *SAVED),
    *("return_dict", "output_hidden_states", "output_attentions"),
)

Configs = Mapping[str, object]  # kind of network → its configuration
Kind = TypeVar("Kind")


class Bounds(NamedTuple):
    """Least and greatest value of a number, or length of a list."""

    least: float
    most: float


Id = Annotated[int, Bounds(0, LARGEST)]
Count = Annotated[int, Bounds(1, MOST_LAYERS)]  # of layers or codebooks
Signed = Annotated[float, Bounds(-LARGEST, LARGEST)]
Sizes = Annotated[tuple[int, ...], Bounds(1, MOST_LAYERS)]
Strides = Annotated[tuple[Annotated[int, Bounds(2, LARGEST)], ...], Bounds(1, MOST_LAYERS)]
_BOUNDS = {int: Bounds(1, LARGEST), float: Bounds(5e-324, LARGEST)}  # of fields without any
_NONE = object()
Fault = tuple[str, str]  # expectation, if any, and what was found


def at(
    *paths: str,
    default: Any = MISSING,
    otherwise: Any = _NONE,
    convert: Callable[..., Any] | None = None,
    **forms: str,
) -> Any:
    """Declare where a published file has a field.

    paths: `section.name` inside the file's part for this class, or from the top with a leading "/"; the first
    that has a value counts, and with `convert` all do. Without any, the field's own name.
    default: of the constructor.
    otherwise: the value where the file has none, or a function of the fields before it.
    convert: makes the field of the file's value, or those of all paths, and the fields before it.
    forms: path by the name of a published form, instead of `paths`.
    """
    how = {"paths": paths, "otherwise": otherwise, "convert": convert, "forms": forms}
    return field(default=default, metadata=how)


@dataclass(frozen=True)
class FileForm:
    """A published form of a configuration."""

    where: str  # the file, in messages
    unused: Mapping[str, Collection[str]] | None = None  # section → names without effect; None: any names
    fixed: Mapping[str, Any] = field(default_factory=dict)  # path → the only supported value
    # path → the attribute, or the function of the configuration, whose value it must have
    equal: Mapping[str, str | Callable[[Any], Any]] = field(default_factory=dict)
    needs: Collection[str] = ()  # paths that may not be missing, besides those of fields
    support: str = "this variant is not supported"
    name: str = ""  # in `at`


@dataclass_transform(frozen_default=True, field_specifiers=(at,))
class Config:
    """Base of frozen dataclasses of sizes; each is checked when it is made. No dtype, device or path.

    title: opens the messages. Raises CheckpointError for values that do not fit the annotations, and for
    `faults`.
    """

    _title = ""

    def __init_subclass__(cls, title: str) -> None:
        cls._title = title
        dataclass(frozen=True)(cls)

    def __post_init__(self) -> None:
        if found := list(_faults(self, "")):
            raise CheckpointError(f"{self._title}: {'; '.join(_told(found))}")

    def faults(self) -> Iterator[str]:
        """Yield the faults between fields, whose types are right."""
        return iter(())

    def to_dict(self) -> dict[str, Any]:
        """Return our own schema, as `from_dict` reads it."""
        return asdict(cast(Any, self))

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], **known: Any) -> Self:
        """Read our own schema, which has exactly the fields that are not `known`."""
        return cls.read(FileForm(cls._title, name=_OWN), document, **known)

    @classmethod
    def read(cls, form: FileForm, document: Mapping[str, Any], **known: Any) -> Self:
        """Read a published file. known: fields that it does not have."""
        reading = _Reading(form, mapping(document, form.where))
        config = reading.config(cls, "", known)
        reading.check_names()
        if not (reading.faults or reading.missing):
            reading.faults |= dict.fromkeys(_faults(config, ""))
        if not (reading.faults or reading.missing):
            reading.check_equal(config)
        if summary := reading.summary():
            raise CheckpointError(f"{form.where}: {summary}")
        return config


_OWN = "own"


class _Reading:
    """One reading of a document, and its faults."""

    def __init__(self, form: FileForm, document: Mapping[str, Any]):
        self.form, self.document = form, document
        self.claimed = {*form.fixed, *form.equal}  # paths
        self.unknown, self.missing = dict[str, None](), dict[str, None]()  # sets in order
        self.faults = dict[Fault, None]()
        self.is_variant = False

    def config(self, cls: Any, section: str, known: Mapping[str, Any]) -> Any:
        """Read the fields of a class without a check between them; those with faults are left out."""
        found = dict(known)
        for own_field in fields(cls):
            if own_field.name not in known:
                self.field(found, own_field.name, _hints(cls)[own_field.name], own_field.metadata, section)
        if self.form.name == _OWN:
            self.check_section(section, [own_field.name for own_field in fields(cls)])
        made = object.__new__(cls)
        vars(made).update(found)
        return made

    def field(
        self, found: dict[str, Any], name: str, hint: Any, how: Mapping[str, Any], section: str
    ) -> None:
        """Read a field into `found`."""
        own = self.form.name == _OWN
        convert = None if own else how.get("convert")
        relative = how.get("paths") or (name,)
        if own or self.form.name in how.get("forms", ()):
            relative = (name if own else how["forms"][self.form.name],)
        paths = [path[1:] if path[0] == "/" else _dotted(section, path) for path in relative]
        self.claimed.update(paths)
        values = [self.look(path) for path in paths]
        if convert is None:  # the paths are alternatives
            best = min(range(len(paths)), key=lambda i: (values[i] is _NONE, values[i] is None))
            values, paths = [values[best]], [paths[best]]
        raw, path, otherwise = values[0], paths[0], _NONE if own else how.get("otherwise", _NONE)
        wants = raw in (None, _NONE) and otherwise is not _NONE
        if _NONE in values and not wants:
            for path in paths:
                self.miss(path)
            return
        try:
            if wants:
                self.miss(path, needed=False)
                value = otherwise(found) if callable(otherwise) else otherwise
            else:
                value = convert(*values, found) if convert else self.decoded(raw, hint, path)
        except CheckpointError as fault:
            self.faults["", f"{path}: {fault}"] = None
            return
        except (TypeError, ValueError, AttributeError, ArithmeticError, LookupError) as fault:
            # KeyError: a field before it has a fault, and is not in `found`
            if not isinstance(fault, KeyError) or not (self.faults or self.missing):
                self.faults["", f"{path} {raw!r:.40} is not understood"] = None
            return
        if wanted := _misfit(value, hint):
            made = f"{path} {raw!r:.40}: {name} {value!r:.40}" if convert else f"{path} {raw!r:.40}"
            self.faults[wanted, made] = None
        else:
            found[name] = value

    def look(self, path: str) -> Any:
        """Return the value at a path, _NONE if there is none."""
        held: Any = self.document
        for name in path.split(".") if path else ():
            if isinstance(held, list | tuple) and name.isdigit() and int(name) < len(held):
                held = held[int(name)]  # which `decoded` reads
            elif isinstance(held, Mapping) and name in held:
                held = held[name]
            else:
                return _NONE
        return held

    def miss(self, path: str, *, needed: bool = True) -> None:
        """Note a section of a path that is no object, and a missing one if the path is needed."""
        names = path.split(".")
        for depth in range(1, len(names) + 1):
            section = ".".join(names[:depth])
            held = self.look(section)
            if held is _NONE and needed:
                self.missing[section] = None
            if held is _NONE or (held is None and not needed):
                return
            if depth < len(names) and not isinstance(held, Mapping | list | tuple):
                self.faults["an object", f"{section} {held!r:.40}"] = None
                return

    def decoded(self, raw: Any, hint: Any, path: str) -> Any:
        """Turn lists into tuples, and objects into the configurations that a hint names."""
        kind = next((item for item in (hint, *get_args(hint)) if _is_config(item)), None)
        if isinstance(raw, list | tuple):
            items = get_args(get_args(hint)[0] if get_origin(hint) is Annotated else hint) or (Any,)
            return tuple(self.decoded(item, items[0], f"{path}.{i}") for i, item in enumerate(raw))
        if kind and get_origin(hint) is not tuple and isinstance(raw, Mapping):
            return self.config(kind, path, {})
        return raw

    def check_names(self) -> None:
        """Note unknown names of the form's sections, and other values than its fixed ones."""
        for section, unused in (self.form.unused or {}).items():
            inside = [path for path in self.claimed if not section or path.startswith(f"{section}.")]
            known = {path.removeprefix(f"{section}.").partition(".")[0] for path in inside}
            self.check_section(section, {*known, *unused})
        for path in (*self.form.needs, *self.form.fixed, *self.form.equal):
            self.miss(path, needed=path in self.form.needs)
        for path, value in self.form.fixed.items():
            self.compare(path, value)

    def check_section(self, section: str, known: Collection[str]) -> None:
        """Note unknown names of a section."""
        held = self.look(section)
        names = set(map(str, held)) - set(known) if isinstance(held, Mapping) else set()
        self.unknown |= dict.fromkeys(_dotted(section, name) for name in sorted(names))

    def check_equal(self, config: object) -> None:
        """Note other values than those of the configuration's attributes."""
        for path, of in self.form.equal.items():
            if path in self.form.needs or self.look(path) is not None:
                self.compare(path, of(config) if callable(of) else attrgetter(of)(config))

    def compare(self, path: str, value: object) -> None:
        """Note a value that is stated and differs."""
        if (found := self.look(path)) is not _NONE and found != value:
            self.faults["", f"{path} {found!r:.40}, not {value!r:.40}"] = None
            self.is_variant = True

    def summary(self) -> str:
        """Join all faults in one line."""
        found = [f"unknown {_listed(self.unknown)}"] if self.unknown else []
        found += [f"missing {_listed(self.missing)}"] if self.missing else []
        found += _told(self.faults)
        if self.is_variant or (self.unknown and self.form.name != _OWN):
            found.append(self.form.support)
        return "; ".join(found)


def _listed(paths: Collection[str]) -> str:
    """List paths in their order, with quotes around other characters than those of names."""
    return ", ".join(path if path.replace(".", "_").isidentifier() else repr(path) for path in paths)


def _dotted(section: str, name: str) -> str:
    return f"{section}.{name}" if section else name


def _is_config(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Config)


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls, include_extras=True)


def _told(faults: Iterable[Fault]) -> list[str]:
    """Format faults; those with the same expectation together."""
    groups = dict[str, list[str]]()
    for wanted, found in faults:
        groups.setdefault(wanted, []).append(found)
    others = groups.pop("", [])
    return [*(f"{', '.join(found)}: expected {wanted}" for wanted, found in groups.items()), *others]


def _faults(config: Any, section: str) -> Iterator[Fault]:
    """Yield the faults of types; where there are none, those of the parts and those between fields."""
    clean, parts = True, dict[str, Config]()
    for name, hint in _hints(type(config)).items():
        value = getattr(config, name)
        if wanted := _misfit(value, hint):
            clean = False
            yield wanted, f"{_dotted(section, name)} {value!r:.40}"
        many = value if isinstance(value, tuple) else (value,)
        parts |= {
            f"{name}.{i}" if many is value else name: fault
            for i, fault in enumerate(many)
            if isinstance(fault, Config)
        }
    for name, part in parts.items():
        for fault in _faults(part, _dotted(section, name)):
            clean = False
            yield fault
    if clean:
        yield from (("", f"{section}: {fault}" if section else fault) for fault in config.faults())


def _misfit(value: Any, hint: Any, bounds: Any = None) -> str:
    """Describe what a field may have; empty if a value is such. bounds: as in `Annotated`, or choices."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _misfit(value, *args)
    if origin is UnionType:
        return "" if value is None else _misfit(value, args[0])
    if origin is tuple:
        return _misfit_of_list(value, args, bounds)
    if hint in _BOUNDS:
        least, most = bounds or _BOUNDS[hint]
        fits = isinstance(value, hint | int) and not isinstance(value, bool) and least <= value <= most
        words = "a positive number" if 0 < least < 1 else f"a number from {least} to {most}"
        return "" if fits else words.replace("number", "whole number") if hint is int else words
    if hint is str and bounds is not None:
        return "" if isinstance(value, str) and value in bounds else f"one of {', '.join(bounds)}"
    words = {bool: "true or false", str: "a string"}
    return "" if isinstance(value, hint) else words.get(hint, "an object")


def _misfit_of_list(value: Any, args: tuple[Any, ...], bounds: Bounds | None) -> str:
    least, most = (len(args),) * 2 if args[-1] is not ... else bounds or (0, LARGEST)
    if not isinstance(value, tuple) or not least <= len(value) <= most:
        return (
            "a list"
            if most == LARGEST
            else f"a list of {least}"
            if least == most
            else f"a list of {least} to {most}"
        )
    types = args[:1] * len(value) if args[-1] is ... else args
    wrong = filter(None, map(_misfit, value, types))
    return next((f"a list, with each item {wanted}" for wanted in wrong), "")


def heads_faults(heads: int, key_heads: int, width: int) -> Iterator[str]:
    """Yield a fault unless heads are a multiple of key heads, and a head's width is even."""
    if heads % key_heads or width % 2:
        yield f"{heads} heads of {width} for {key_heads} key heads; give a multiple, and an even width"


def config_of(configs: Configs, kind: str, cls: type[Kind]) -> Kind:
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

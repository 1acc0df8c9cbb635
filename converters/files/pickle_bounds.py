"""Bounds of a pickle's cost, found in one pass over its opcodes; no object is built and nothing is run.

torch.load(weights_only=True) runs no code of a file, but a few bytes can keep it busy for ever or fill the
memory. This pass follows only the kinds of the values on the stack. It proves that reading takes time and
memory in proportion to the pickle, or names what it cannot prove in `Bounds.doubt`.
"""

from __future__ import annotations

import pickletools
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

from tts_core.errors import CheckpointError
from tts_core.files.header import MOST_AXES

LARGEST_PICKLE = 16 << 20  # bytes without the tensors; published files have at most 1.2 million
MOST_OPCODES = 2_000_000
MOST_WORK = 10**9  # opcodes times containers that are used again: each use may copy one of them
MOST_BYTES = 16 << 20  # of byte strings, together
PROTOCOLS = (2, 3)  # that torch.load(weights_only=True) reads
SAVE_AGAIN = "where you trust it, load it with weights_only=False and save its tensors again"

_NUMBERS = {"Double": 8, "Long": 8, "Float": 4, "Int": 4, "Half": 2, "BFloat16": 2, "Short": 2}
_NUMBERS |= {"Char": 1, "Byte": 1, "Bool": 1}
STORAGES = {  # name → bytes of a number; those of torch.cuda are in files of torch < 0.4
    f"{module} {kind}Storage": size for module in ("torch", "torch.cuda") for kind, size in _NUMBERS.items()
}
CONTAINERS = ("omegaconf.dictconfig DictConfig", "omegaconf.listconfig ListConfig")
VALUES = tuple(f"omegaconf.nodes {kind}Node" for kind in ("Any", "String", "Integer", "Float", "Boolean"))
METADATA = ("omegaconf.base ContainerMetadata", "omegaconf.base Metadata")
TYPES = (  # in OmegaConf's records of the values that it allows; never called
    "typing Any",
    *(f"__builtin__ {kind}" for kind in ("dict", "list", "int", "long", "float", "str", "unicode", "bool")),
    *(f"builtins {kind}" for kind in ("dict", "list", "int", "float", "str", "bool")),
)
_TENSORS = ("torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_tensor")  # the latter of torch < 0.4
_BYTES = "_codecs encode"
_ORDERED, _DEFAULT = "collections OrderedDict", "collections defaultdict"
_PROVED = {*STORAGES, *CONTAINERS, *VALUES, *METADATA, *TYPES, *_TENSORS, _BYTES, _ORDERED, _DEFAULT}
# names that torch takes as well, at a cost that depends on the values
_DOUBTFUL = {
    *("collections Counter", "__builtin__ set", "__builtin__ complex", "__builtin__ bytearray"),
    *("torch Size", "torch device", "torch.nn.parameter Parameter", "torch.serialization _get_layout"),
    *(f"torch._utils _rebuild_{kind}" for kind in ("parameter", "tensor_v3", "sparse_tensor", "qtensor")),
    *(f"torch {dtype}" for dtype in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "uint8")),
}


_OBJECTS = {*CONTAINERS, *VALUES, *METADATA, *_DOUBTFUL}
_LONGEST_KEY = 100  # characters; torch.save counts the storages


@dataclass(frozen=True)
class Bounds:
    """The findings about a pickle."""

    names: frozenset[str]  # modules and names that it asks for, as "module name"
    storages: dict[str, int]  # key → bytes
    doubt: str | None  # the reason why its cost is not proved


class _Item(NamedTuple):
    kind: str  # name, text, number, value, tuple, container, storage
    content: Any = None  # a name, a text, a number, or a tuple's items


def measure(data: bytes | BinaryIO) -> Bounds:
    """Bound the cost of reading a pickle that torch.save wrote; a file is left after the pickle's end.

    Raises CheckpointError for opcodes and names that torch.save does not write for weights, for tensors of
    more than MOST_AXES axes, and beyond the limits above; ValueError for a damaged pickle.
    """
    walk, count = _Walk(), 0
    for count, (opcode, argument, place) in enumerate(pickletools.genops(data), 1):
        if count == 1 and opcode.name != "PROTO":
            raise other_protocol("0 or 1")
        if count > MOST_OPCODES or (place or 0) > LARGEST_PICKLE:
            raise CheckpointError(
                f"refused: more than {MOST_OPCODES} opcodes, or {LARGEST_PICKLE} bytes of them"
            )
        walk.step(opcode.name, argument)
    doubt = walk.doubt
    if walk.reused * count > MOST_WORK:
        doubt = f"{walk.reused} containers are used again among {count} opcodes"
    return Bounds(frozenset(walk.names), walk.storages, doubt)


class _Walk:
    """The state of the pass."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.storages: dict[str, int] = {}
        self.doubt: str | None = None
        self.reused = 0
        self._octets = 0
        self._stack: list[_Item] = []
        self._marks: list[int] = []
        self._memo: dict[int, _Item] = {}

    def step(self, opcode: str, argument: Any) -> None:
        """Follow one opcode."""
        match opcode:
            case "PROTO":
                if argument not in PROTOCOLS:
                    raise other_protocol(argument)
            case "MARK":
                self._marks.append(len(self._stack))
            case "NONE" | "NEWTRUE" | "NEWFALSE" | "BINFLOAT":
                self._push("value")
            case "BININT" | "BININT1" | "BININT2" | "LONG1":
                if argument.bit_length() > 64:  # equal hashes are easy to find among these
                    self._doubt("a number of more than 64 bits")
                self._push("number", argument)
            case "BINUNICODE":
                self._push("text", argument)
            case "SHORT_BINSTRING":  # a text of Python 2
                self._push("text", argument.encode("latin-1").decode("utf-8"))
            case "BINSTRING" | "SHORT_BINBYTES" | "BINBYTES":
                kind = "a long text of Python 2" if opcode == "BINSTRING" else "a byte string of protocol 3"
                raise CheckpointError(f"refused: {kind}, which torch cannot read without code; {SAVE_AGAIN}")
            case "EMPTY_DICT" | "EMPTY_LIST":
                self._push("container")
            case "EMPTY_TUPLE":
                self._push("tuple", [])
            case "TUPLE":
                self._push("tuple", self._since_mark())
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                self._push("tuple", self._take(int(opcode[-1])))
            case "APPEND":
                self._take(1)
                self._top()
            case "APPENDS":
                self._since_mark()
                self._top()
            case "SETITEM":
                self._check_keys(self._take(2))
            case "SETITEMS":
                self._check_keys(self._since_mark())
            case "BINPUT" | "LONG_BINPUT":
                self._memo[argument] = self._top()
            case "BINGET" | "LONG_BINGET":
                self._fetch(argument)
            case "GLOBAL":
                self._name(argument)
            case "NEWOBJ":
                kind, arguments = self._take(2)
                if kind.kind != "name" or kind.content not in _OBJECTS:
                    raise CheckpointError(f"refused: the pickle makes an object of {_label(kind)}")
                if kind.content in _DOUBTFUL or arguments != _Item("tuple", []):
                    self._doubt(f"an object of {_label(kind)}")
                self._push("container")
            case "REDUCE":
                self._call(*self._take(2))
            case "BUILD":
                self._take(1)
                self._top()
            case "BINPERSID":
                self._storage(*self._take(1))
            case "STOP":
                if self._marks or len(self._stack) != 1:
                    raise ValueError("it ends inside a value")
            case other:
                raise CheckpointError(
                    f"refused: the pickle's opcode {other} is not one that torch.save writes"
                )

    def _doubt(self, reason: str) -> None:
        self.doubt = self.doubt or reason

    def _push(self, kind: str, content: Any = None) -> None:
        self._stack.append(_Item(kind, content))

    def _since_mark(self) -> list[_Item]:
        if not self._marks:
            raise ValueError("a mark is missing")
        return self._take(len(self._stack) - self._marks.pop())

    def _take(self, count: int) -> list[_Item]:
        """Remove the topmost items above the last mark."""
        start = len(self._stack) - count
        if start < (self._marks[-1] if self._marks else 0):
            raise ValueError("the stack is empty")
        items = self._stack[start:]
        del self._stack[start:]
        return items

    def _top(self) -> _Item:
        [item] = self._take(1)
        self._stack.append(item)
        return item

    def _fetch(self, place: int) -> None:
        if place not in self._memo:
            raise ValueError(f"nothing is stored as {place}")
        item = self._memo[place]
        if (
            item.kind == "tuple" and item.content
        ):  # tuples of tuples of tuples: their hash doubles at each level
            self._doubt("a tuple is used again")
        self.reused += item.kind == "container"
        self._stack.append(item)

    def _name(self, name: str) -> None:
        if name not in _PROVED | _DOUBTFUL:
            asked = name.replace(" ", ".", 1)
            if name.startswith("torch") and name.endswith("Storage"):
                raise CheckpointError(f"refused: it has tensors of {asked:.160}, which are not read")
            if name.startswith("torch.nn.modules."):
                raise CheckpointError(
                    f"refused: a whole module, with its code ({asked:.160}); save its state_dict instead"
                )
            raise CheckpointError(f"refused: the pickle asks for {asked:.160}, which is code and not weights")
        if name in _DOUBTFUL:
            self._doubt(f"it asks for {name.replace(' ', '.', 1)}")
        self.names.add(name)
        self._push("name", name)

    def _check_keys(self, flat: list[_Item]) -> None:
        if any(key.kind in ("tuple", "container", "name", "storage") for key in flat[::2]):
            self._doubt("a key that is no text or number")
        self._top()

    def _call(self, function: _Item, arguments: _Item) -> None:
        name = function.content if function.kind == "name" else None
        given = arguments.content if arguments.kind == "tuple" else []
        if name in _TENSORS:
            self._check_tensor(given)
        elif name == _BYTES:
            self._check_octets(given)
        elif name in _DOUBTFUL or (
            name in (_ORDERED, _DEFAULT) and not all(_is_type(each) for each in given)
        ):
            self._doubt(f"a call of {_label(function)}")
        elif name not in (_ORDERED, _DEFAULT):
            raise CheckpointError(f"refused: the pickle calls {_label(function)}")
        self._push("value" if name == _BYTES else "container")

    def _check_tensor(self, given: list[_Item]) -> None:
        match given:
            case [_Item("storage"), _Item("number"), _Item("tuple", shape), _Item("tuple", strides), *_]:
                axes = max(len(shape), len(strides))
                if axes > MOST_AXES:
                    raise CheckpointError(
                        f"refused: a tensor of {axes} axes; at most {MOST_AXES} are supported"
                    )
            case _:
                raise ValueError("a tensor without a storage or a shape")

    def _check_octets(self, given: list[_Item]) -> None:
        match given:
            case [_Item("text", text), _Item("text", "latin1")]:  # others, like punycode, take quadratic time
                self._octets += len(text)
            case _:
                raise CheckpointError("refused: byte strings that torch.save does not write")
        if self._octets > MOST_BYTES:
            raise CheckpointError(f"refused: more than {MOST_BYTES} bytes in byte strings")

    def _storage(self, identity: _Item) -> None:
        given = identity.content if identity.kind == "tuple" else []
        match given:
            case [
                _Item("text", "storage"),
                _Item("name", name),
                _Item("text", key),
                _,
                _Item("number", count),
                *rest,
            ]:
                if rest not in ([], [_Item("value")]):  # a view, in a file of torch < 1.6
                    self._doubt("a view of a storage")
                if name not in STORAGES or not 0 < len(key) <= _LONGEST_KEY or count < 0:
                    raise CheckpointError(
                        f"refused: the pickle refers to {_label(given[1])}, no storage of numbers"
                    )
                nbytes = count * STORAGES[name]
                if self.storages.setdefault(key, nbytes) != nbytes:
                    raise ValueError(f"storage {key} has two sizes")
                self._push("storage")
            case _:
                raise CheckpointError("refused: the pickle refers to something that is no storage")


def other_protocol(number: object) -> CheckpointError:
    """Build the error for a pickle of a protocol that is not read."""
    return CheckpointError(
        f"refused: pickle protocol {number}; only {PROTOCOLS[0]}, which torch.save writes, and "
        f"{PROTOCOLS[1]} are read; {SAVE_AGAIN}"
    )


def _is_type(item: _Item) -> bool:
    return item.kind == "name" and item.content in TYPES


def _label(item: _Item) -> str:
    return str(item.content).replace(" ", ".", 1)[:80] if item.kind == "name" else f"a {item.kind}"

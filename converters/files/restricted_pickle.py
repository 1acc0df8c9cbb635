"""A pickle's plain content, read by a small interpreter that cannot run anything.

It knows the opcodes that torch.save writes and the names on ALLOWED, and builds dicts, lists, numbers,
strings, references to tensors and records of OmegaConf objects, nothing else. A name is only compared, never
imported; nothing that a file says is ever called.
"""

from __future__ import annotations

import pickletools
from dataclasses import dataclass, field
from typing import Any

from tts_core.errors import CheckpointError

_STORAGES = {
    "torch DoubleStorage": "F64",
    "torch FloatStorage": "F32",
    "torch HalfStorage": "F16",
    "torch BFloat16Storage": "BF16",
    "torch LongStorage": "I64",
    "torch IntStorage": "I32",
    "torch ShortStorage": "I16",
    "torch CharStorage": "I8",
    "torch ByteStorage": "U8",
    "torch BoolStorage": "BOOL",
}
_TENSOR = "torch._utils _rebuild_tensor_v2"
_DICTS = ("collections OrderedDict", "collections defaultdict")
_NODES = (
    "omegaconf.dictconfig DictConfig",
    "omegaconf.listconfig ListConfig",
    "omegaconf.nodes AnyNode",
    "omegaconf.base ContainerMetadata",
    "omegaconf.base Metadata",
)
_TYPES = (  # stand in OmegaConf's records of what a value may be; never called
    "typing Any",
    *(
        f"{module} {name}"
        for module in ("__builtin__", "builtins")
        for name in ("dict", "list", "int", "float", "str", "bool")
    ),
)
ALLOWED = frozenset((*_STORAGES, _TENSOR, *_DICTS, *_NODES, *_TYPES))


@dataclass(frozen=True)
class Name:
    """A module and a name in it, on the list; stands for nothing but itself."""

    name: str


@dataclass
class Node:
    """An OmegaConf object: what kind, and the attributes that the pickle gives it."""

    kind: str
    state: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Storage:
    """The numbers of one member of the zip."""

    key: str
    dtype: str  # safetensors name
    count: int  # numbers in it


@dataclass(frozen=True)
class Tensor:
    """A view of a storage."""

    storage: Storage
    offset: int  # in numbers
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in numbers

    @property
    def span(self) -> int:
        """Numbers from the first to the last, inclusive."""
        if 0 in self.shape:
            return 0
        return 1 + sum((size - 1) * step for size, step in zip(self.shape, self.strides, strict=True))


def interpret(data: bytes) -> Any:
    """What a pickle of protocol 2 describes. Raises CheckpointError for any other name or opcode."""
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}

    def since_mark() -> list[Any]:
        start = marks.pop()
        items = stack[start:]
        del stack[start:]
        return items

    def take(count: int) -> list[Any]:
        """The topmost values above the last mark."""
        start = len(stack) - count
        if start < (marks[-1] if marks else 0):
            raise ValueError("the stack is empty")
        items = stack[start:]
        del stack[start:]
        return items

    def top() -> Any:
        """The topmost value, left in place."""
        (value,) = take(1)
        stack.append(value)
        return value

    for opcode, given, _ in pickletools.genops(data):
        argument: Any = given
        match opcode.name:
            case "PROTO":
                if argument != 2:
                    raise CheckpointError(f"refused: pickle protocol {argument}, torch.save writes 2")
            case "MARK":
                marks.append(len(stack))
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[opcode.name])
            case "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINFLOAT" | "BINUNICODE":
                stack.append(argument)
            case "EMPTY_DICT" | "EMPTY_LIST" | "EMPTY_TUPLE":
                stack.append({"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}[opcode.name]())
            case "TUPLE":
                stack.append(tuple(since_mark()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(tuple(take(int(opcode.name[-1]))))
            case "APPEND":
                target, item = take(2)
                _append(target, [item])
                stack.append(target)
            case "APPENDS":
                items = since_mark()
                _append(top(), items)
            case "SETITEM":
                target, key, item = take(3)
                _set_items(target, [key, item])
                stack.append(target)
            case "SETITEMS":
                items = since_mark()
                _set_items(top(), items)
            case "BINPUT" | "LONG_BINPUT":
                memo[argument] = top()
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[argument])
            case "GLOBAL":
                if argument not in ALLOWED:
                    asked = argument.replace(" ", ".", 1)
                    raise CheckpointError(
                        f"refused: the pickle asks for {asked:.160}, which is code and not weights"
                    )
                stack.append(Name(argument))
            case "NEWOBJ":
                stack.append(_new(*take(2)))
            case "REDUCE":
                stack.append(_made(*take(2)))
            case "BUILD":
                target, state = take(2)
                _give_state(target, state)
                stack.append(target)
            case "BINPERSID":
                stack.append(_storage(*take(1)))
            case "STOP":
                if marks:
                    raise ValueError("it ends inside a mark")
                (result,) = stack
                return result
            case other:
                raise CheckpointError(
                    f"refused: the pickle's opcode {other} is not one that torch.save writes"
                )
    raise ValueError("it has no end")


def _append(target: Any, items: list[Any]) -> None:
    if type(target) is not list:
        raise ValueError(f"items are appended to a {type(target).__name__}")
    target += items


def _set_items(target: Any, flat: list[Any]) -> None:
    keys = flat[::2]
    if type(target) is not dict or not all(type(key) in (str, int) for key in keys):
        raise ValueError(f"items with {type(target).__name__} or keys that are not plain")
    target.update(zip(keys, flat[1::2], strict=True))


def _new(kind: Any, arguments: Any) -> Node:
    if not isinstance(kind, Name) or kind.name not in _NODES or arguments != ():
        raise CheckpointError(f"refused: the pickle makes an object of {_label(kind)}")
    return Node(kind.name)


def _made(function: Any, arguments: Any) -> Any:
    """What one of the three functions on the list would return."""
    name = function.name if isinstance(function, Name) else None
    if name in _DICTS and isinstance(arguments, tuple) and not any(isinstance(a, list) for a in arguments):
        return {}  # OrderedDict(), defaultdict(dict)
    if name == _TENSOR:
        storage, offset, shape, strides = arguments[:4]
        numbers = (offset, *shape, *strides)
        if isinstance(storage, Storage) and all(type(number) is int for number in numbers):
            return Tensor(storage, offset, tuple(shape), tuple(strides))
    raise CheckpointError(f"refused: the pickle calls {_label(function)}")


def _give_state(target: Any, state: Any) -> None:
    """The attributes of an OmegaConf object; those of a state dict say nothing about its tensors."""
    if type(state) is not dict or not isinstance(target, Node | dict):
        raise CheckpointError(f"refused: the pickle sets attributes of {_label(target)}")
    if isinstance(target, Node):
        target.state.update(state)


def _storage(identity: Any) -> Storage:
    kind, name, key, _, count = identity
    if kind != "storage" or not isinstance(name, Name) or name.name not in _STORAGES:
        raise CheckpointError(f"refused: the pickle refers to {_label(name)}")
    if type(key) is not str or type(count) is not int or count < 0:
        raise ValueError("a storage without a name or size")
    return Storage(key, _STORAGES[name.name], count)


def _label(value: Any) -> str:
    return value.name if isinstance(value, Name) else f"a {type(value).__name__}"

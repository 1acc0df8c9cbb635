"""Read a pickle that torch.save wrote, by its opcodes: plain data and views of storages; nothing is run.

Python's own unpickler calls what a pickle names, and a few bytes can keep it busy for ever or fill the
memory. This one knows the values that torch.save writes and no others, never computes the hash of a
container, and takes time and memory in proportion to the pickle.
"""

from __future__ import annotations

import io
import pickletools
from collections.abc import Iterable
from typing import Any, NamedTuple

from tts_core.errors import CheckpointError
from tts_core.files.bounded import BoundedReader
from tts_core.files.header import ITEM_SIZES, MOST_AXES

LARGEST_PICKLE = 16 << 20  # bytes without the tensors; published files have at most 1.2 million
MOST_STEPS = 4_000_000  # opcodes, and values that they take from the stack or copy, together
MOST_ARGUMENTS = 16  # of a call; torch.save writes at most 8
MOST_BYTES = 16 << 20  # of byte strings, together
PROTOCOLS = (2, 3)  # that are read
SAVE_AGAIN = "where you trust it, load it with weights_only=False and save its tensors again"

_NUMBERS = {"Double": "F64", "Float": "F32", "Half": "F16", "BFloat16": "BF16", "Bool": "BOOL", "Byte": "U8"}
_NUMBERS |= {"Long": "I64", "Int": "I32", "Short": "I16", "Char": "I8"}
STORAGES = {  # name → safetensors name; those of torch.cuda are in files of torch < 0.4
    f"{module} {kind}Storage": code for module in ("torch", "torch.cuda") for kind, code in _NUMBERS.items()
}
_NODES = {  # OmegaConf's classes → the attribute that contains the value
    **dict.fromkeys(("omegaconf.dictconfig DictConfig", "omegaconf.listconfig ListConfig"), "_content"),
    **{f"omegaconf.nodes {kind}Node": "_val" for kind in ("Any", "String", "Integer", "Float", "Boolean")},
    **dict.fromkeys(("omegaconf.base ContainerMetadata", "omegaconf.base Metadata"), ""),
}
_TYPES = {  # in OmegaConf's records of the values that it allows, and torch's own; never called
    "typing Any",
    *(f"__builtin__ {kind}" for kind in ("dict", "list", "int", "long", "float", "str", "unicode", "bool")),
    *(f"builtins {kind}" for kind in ("dict", "list", "int", "float", "str", "bool")),
    *(f"torch {dtype}" for dtype in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "uint8")),
}
_TENSORS = {"torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_tensor"}  # the latter of torch < 0.4
_DICTS = {"collections OrderedDict", "collections defaultdict", "collections Counter"}
_BYTES = "_codecs encode"
_ITSELF = {"torch.nn.parameter Parameter", "torch._utils _rebuild_parameter", "torch Size"}  # of the argument
_OPAQUE = {  # name → kind of what a call makes
    **{f"__builtin__ {kind}": kind for kind in ("set", "complex", "bytearray")},
    **{"torch device": "device", "torch.serialization _get_layout": "layout"},
    **{f"torch._utils _rebuild_{kind}": "Tensor" for kind in ("tensor_v3", "sparse_tensor", "qtensor")},
}
_KNOWN = {*STORAGES, *_NODES, *_TYPES, *_TENSORS, *_DICTS, _BYTES, *_ITSELF, *_OPAQUE}
_LONGEST_KEY = 100  # characters; torch.save counts the storages


class Storage(NamedTuple):
    """Numbers in the file.

    code: safetensors name of their type.
    first: place of the first one, which views in older files have.
    """

    key: str
    code: str
    count: int
    first: int = 0

    @property
    def nbytes(self) -> int:
        """Size in the file."""
        return self.count * ITEM_SIZES[self.code]


class Tensor(NamedTuple):
    """A view of a storage. offset, strides: in numbers."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Name(NamedTuple):
    """A class or function that the pickle asks for, as "module name"."""

    name: str


class Opaque(NamedTuple):
    """A value that is not plain, such as a sparse tensor. kind: the name of its type."""

    kind: str

    def __repr__(self) -> str:
        return f"<{self.kind}>"


class Node:
    """An object of OmegaConf, with the attributes that the pickle gives it."""

    def __init__(self, name: str):
        self._field = _NODES[name]
        self.state: dict[Any, Any] = {}

    def content(self) -> Any:
        """Return its value, without OmegaConf's own records."""
        return self.state.get(self._field)


class Unpickled(NamedTuple):
    """The contents of a pickle: plain data, Tensor, Node, Name and Opaque. has_nodes: of OmegaConf."""

    content: Any
    storages: dict[str, Storage]
    has_nodes: bool


def unpickle(data: bytes | BoundedReader) -> Unpickled:
    """Read a pickle that torch.save wrote; a file is left after the pickle's end.

    Raises CheckpointError for opcodes and names that torch.save does not write for weights, for tensors of
    more than MOST_AXES axes, and beyond the limits above; ValueError for a damaged pickle.
    """
    reader = _Reader()
    source = BoundedReader(io.BytesIO(data)) if isinstance(data, bytes) else data  # pyright: ignore[reportArgumentType]
    for opcode, argument, offset in pickletools.genops(source):
        if not reader.steps and opcode.name != "PROTO":
            raise other_protocol("0 or 1")
        if (offset or 0) > LARGEST_PICKLE:
            raise CheckpointError(f"refused: more than {LARGEST_PICKLE} bytes of opcodes")
        reader.count(1)
        reader.step(opcode.name, argument)
    return Unpickled(reader.end(), reader.storages, reader.has_nodes)


class _Reader:
    """The stack, its marks and the memo."""

    def __init__(self) -> None:
        self.storages: dict[str, Storage] = {}
        self.has_nodes = False
        self.steps = self._octets = 0
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def count(self, steps: int) -> None:
        """Add to the steps. Raises CheckpointError beyond MOST_STEPS: before that many values are touched."""
        self.steps += steps
        if self.steps > MOST_STEPS:
            raise CheckpointError(f"refused: more than {MOST_STEPS} opcodes and values that they move")

    def step(self, opcode: str, argument: Any) -> None:
        """Follow one opcode."""
        match opcode:
            case "PROTO":
                if argument not in PROTOCOLS:
                    raise other_protocol(argument)
            case "MARK":
                self._marks.append(len(self._stack))
            case "NONE":
                self._stack.append(None)
            case "NEWTRUE" | "NEWFALSE":
                self._stack.append(opcode == "NEWTRUE")
            case "BININT" | "BININT1" | "BININT2" | "LONG1":
                large = argument.bit_length() > 64  # as keys, equal hashes are easy to find among these
                self._stack.append(Opaque("large number") if large else argument)
            case "BINFLOAT" | "BINUNICODE":
                self._stack.append(argument)
            case "SHORT_BINSTRING":  # a text of Python 2
                self._stack.append(argument.encode("latin-1").decode("utf-8"))
            case "BINSTRING" | "SHORT_BINBYTES" | "BINBYTES":
                kind = "a long text of Python 2" if opcode == "BINSTRING" else "a byte string of protocol 3"
                raise CheckpointError(f"refused: {kind}, which torch cannot read without code; {SAVE_AGAIN}")
            case "EMPTY_DICT":
                self._stack.append({})
            case "EMPTY_LIST":
                self._stack.append([])
            case "EMPTY_TUPLE":
                self._stack.append(())
            case "TUPLE":
                self._stack.append(tuple(self._since_mark()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                self._stack.append(tuple(self._take(int(opcode[-1]))))
            case "APPEND" | "APPENDS":
                items = self._take(1) if opcode == "APPEND" else self._since_mark()
                self._top(list).extend(items)
            case "SETITEM" | "SETITEMS":
                flat = self._take(2) if opcode == "SETITEM" else self._since_mark()
                _put(self._top(dict), zip(flat[::2], flat[1::2], strict=True))
            case "BINPUT" | "LONG_BINPUT":
                self._memo[argument] = self._top(object)
            case "BINGET" | "LONG_BINGET":
                if argument not in self._memo:
                    raise ValueError(f"nothing is stored as {argument}")
                self._stack.append(self._memo[argument])
            case "GLOBAL":
                self._stack.append(_known(argument))
            case "NEWOBJ":
                self._stack.append(self._object(*self._take(2)))
            case "REDUCE":
                self._stack.append(self._call(*self._take(2)))
            case "BUILD":
                [state] = self._take(1)
                target = self._top((Node, dict))  # a dict's are torch's versions of modules
                if not isinstance(state, dict):
                    raise ValueError("attributes that are no dict")
                if isinstance(target, Node):
                    target.state = state
            case "BINPERSID":
                self._stack.append(self._storage(*self._take(1)))
            case "STOP":
                pass
            case other:
                raise CheckpointError(
                    f"refused: the pickle's opcode {other} is not one that torch.save writes"
                )

    def end(self) -> Any:
        """Return the value of the whole pickle."""
        if self._marks or len(self._stack) != 1:
            raise ValueError("it ends inside a value")
        return self._stack[0]

    def _since_mark(self) -> list[Any]:
        if not self._marks:
            raise ValueError("a mark is missing")
        return self._take(len(self._stack) - self._marks.pop())

    def _take(self, count: int) -> list[Any]:
        """Remove the topmost items above the last mark."""
        self.count(count)
        start = len(self._stack) - count
        if start < (self._marks[-1] if self._marks else 0):
            raise ValueError("the stack is empty")
        items = self._stack[start:]
        del self._stack[start:]
        return items

    def _top(self, kind: type | tuple[type, ...]) -> Any:
        [item] = self._take(1)
        if not isinstance(item, kind):
            raise ValueError(f"{_label(item)} is changed")
        self._stack.append(item)
        return item

    def _object(self, kind: Any, arguments: Any) -> Node:
        if not isinstance(kind, Name) or kind.name not in _NODES or arguments != ():
            raise CheckpointError(f"refused: the pickle makes an object of {_label(kind)}")
        self.has_nodes = True
        return Node(kind.name)

    def _call(self, function: Any, given: Any) -> Any:
        name = function.name if isinstance(function, Name) else None
        if not isinstance(given, tuple):
            raise ValueError("a call without arguments")
        _check_arguments(given)
        if name in _TENSORS:
            return _tensor(given)
        if name == _BYTES:
            return self._bytes(given)
        if name in _DICTS:
            return self._dict(given)
        if name in _ITSELF and given:
            return given[0]
        if name in _OPAQUE:
            return Opaque(_OPAQUE[name])
        raise CheckpointError(f"refused: the pickle calls {_label(function)}")

    def _bytes(self, given: tuple[Any, ...]) -> bytes:
        match given:
            case (str(text), "latin1"):  # others, like punycode, take quadratic time
                self._octets += len(text)
            case _:
                raise CheckpointError("refused: byte strings that torch.save does not write")
        if self._octets > MOST_BYTES:
            raise CheckpointError(f"refused: more than {MOST_BYTES} bytes in byte strings")
        return text.encode("latin1")

    def _dict(self, given: tuple[Any, ...]) -> dict[Any, Any]:
        """Build a dict: empty, of another, or of pairs as Python 2 writes them."""
        match given:
            case () | (Name(),):  # of a defaultdict: the type of its values
                pairs = []
            case (dict(other),):
                pairs = other.items()
            case (list(pairs),):
                pass
            case _:
                raise ValueError("a dict of something else than pairs")
        self.count(len(pairs))
        if not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
            raise ValueError("a dict of something else than pairs")
        return _put({}, pairs)

    def _storage(self, identity: Any) -> Storage:
        if isinstance(identity, tuple):
            _check_arguments(identity)
        match identity:
            case ("storage", Name(kind), str(key), _, int(count), *view):
                code = STORAGES.get(kind)
                if code is None or not 0 < len(key) <= _LONGEST_KEY or count < 0:
                    raise CheckpointError(
                        f"refused: the pickle refers to {_label(identity[1])}, no storage of numbers"
                    )
                storage = self.storages.setdefault(key, Storage(key, code, count))
                if storage.code != code:  # PyTorch keeps the first, and reads other numbers than are meant
                    raise CheckpointError(
                        f"refused: storage {key} is of two types, {storage.code} and {code}"
                    )
                if storage.nbytes != count * ITEM_SIZES[code]:
                    raise ValueError(f"storage {key} has two sizes")
                return storage._replace(code=code, count=count, first=_first(view, count))
            case _:
                raise CheckpointError("refused: the pickle refers to something that is no storage")


def other_protocol(number: object) -> CheckpointError:
    """Build the error for a pickle of a protocol that is not read."""
    return CheckpointError(
        f"refused: pickle protocol {number}; only {PROTOCOLS[0]}, which torch.save writes, and "
        f"{PROTOCOLS[1]} are read; {SAVE_AGAIN}"
    )


def _known(name: str) -> Name:
    """Check a name that the pickle asks for."""
    wanted = name.replace(" ", ".", 1)
    if name in _KNOWN:
        return Name(name)
    if name.startswith("torch") and name.endswith("Storage"):
        raise CheckpointError(f"refused: it has tensors of {wanted:.160}, which are not read")
    if name.startswith("torch.nn.modules."):
        raise CheckpointError(
            f"refused: a whole module, with its code ({wanted:.160}); save its state_dict instead"
        )
    raise CheckpointError(f"refused: the pickle asks for {wanted:.160}, which is code and not weights")


def _check_arguments(given: tuple[Any, ...]) -> None:
    """Raise CheckpointError for a long tuple: a pickle can store it once and pass it to every call."""
    if len(given) > MOST_ARGUMENTS:
        raise CheckpointError(
            f"refused: a call with {len(given)} arguments; at most {MOST_ARGUMENTS} are read"
        )


def _put(target: dict[Any, Any], pairs: Iterable[Any]) -> dict[Any, Any]:
    """Add entries to a dict. The hash of a tuple of tuples may take for ever: no key is one."""
    for key, value in pairs:
        if type(key) not in (str, int, float, bool, bytes, type(None)):
            raise CheckpointError("refused: a key that is no text or number")
        target[key] = value
    return target


def _first(view: list[Any], count: int) -> int:
    """Read the first number of a storage's view, in a file of torch < 1.6; 0 if it is none."""
    match view:
        case [] | [None]:
            return 0
        case [(_, int(first), int(size))] if 0 <= first <= first + size <= count:
            return first
        case _:
            raise ValueError("a view beyond its storage")


def _tensor(given: tuple[Any, ...]) -> Tensor:
    match given:
        case (Storage() as storage, int(offset), tuple(shape), tuple(strides), *more):
            pass
        case _:
            raise ValueError("a tensor without a storage or a shape")
    axes = max(len(shape), len(strides))
    if axes > MOST_AXES:
        raise CheckpointError(f"refused: a tensor of {axes} axes; at most {MOST_AXES} are supported")
    numbers = (offset, *shape, *strides)
    if len(shape) != len(strides) or not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError("a tensor whose shape is no list of sizes")
    if any(more[2:]):  # after requires_grad and the hooks
        raise CheckpointError("refused: a tensor whose numbers are negated or conjugated when it is read")
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if 0 not in shape and storage.first + last >= storage.count:
        raise CheckpointError(f"corrupt: a tensor reaches beyond storage {storage.key:.80}; fetch it again")
    return Tensor(storage, storage.first + offset, shape, strides)


def _label(item: Any) -> str:
    if isinstance(item, Name):
        return item.name.replace(" ", ".", 1)[:80]
    return "a container" if isinstance(item, list | dict) else f"a {type(item).__name__}"

"""Pickles read by their opcodes: what torch.save writes is plain data, what costs more is refused."""

import io
import pickle
import random

import pytest

from tests.converters.files.opcodes import (
    ENCODE,
    ORDERED,
    REBUILD,
    START,
    entries,
    number,
    sizes,
    storage,
    tensor,
    text,
    used_again,
)
from tests.tts_core.growth import MOST, growth
from tts_core.errors import CheckpointError
from tts_core.files import unpickle as module
from tts_core.files.bounded import BoundedReader
from tts_core.files.unpickle import Opaque, Storage, Tensor, unpickle

CONFIG_CLASS = b"comegaconf.dictconfig\nDictConfig\n"
CONFIG = CONFIG_CLASS + b")\x81" + entries(text("_content"), entries(text("x"), b"K\x01")) + b"b"
DICT, ANY = b"c__builtin__\ndict\n", b"ctyping\nAny\n"


def test_tensors_and_bytes_are_read():
    shared = tensor(held=storage()) + b"q\x01"
    octets = ENCODE + text("x") + text("latin1") + b"\x86R"
    found = unpickle(
        START + entries(text("a"), shared, text("b"), b"h\x01", text("c"), octets, text("d"), CONFIG) + b"."
    )
    held = Storage("0", "F32", 4)
    assert found.storages == {"0": held}
    node = found.content.pop("d")
    assert found.content == {"a": Tensor(held, 0, (4,), (1,)), "b": Tensor(held, 0, (4,), (1,)), "c": b"x"}
    assert node.content() == {"x": 1}
    assert found.has_nodes
    assert not unpickle(START + entries() + b".").has_nodes


@pytest.mark.parametrize(
    ("pickled", "said"),
    [
        (entries(text("a"), tensor([1] * 33, [1] * 33)), "a tensor of 33 axes; at most 32"),
        (entries(text("a"), tensor([4], [1] * 33)), "a tensor of 33 axes; at most 32"),
        (ENCODE + text("x") + text("punycode") + b"\x86R", "byte strings that torch.save does not write"),
        (ENCODE + text("x") + b"\x85R", "byte strings that torch.save does not write"),
        (b"cposix\nsystem\n", r"asks for posix\.system, which is code"),
        (b"comegaconf.resolvers\noc\n", r"asks for omegaconf\.resolvers\.oc"),
        (DICT + b")R", r"calls __builtin__\.dict"),
        (ANY + b")R", r"calls typing\.Any"),
        (b"])R", "calls a container"),
        (DICT + b")\x81", r"makes an object of __builtin__\.dict"),
        (text("a") + b"Q", "something that is no storage"),
        (
            b"(" + text("storage") + DICT + text("0") + text("cpu") + b"K\x01tQ",
            r"refers to __builtin__\.dict",
        ),
        (storage("x" * 101), "refers to torch.FloatStorage"),
        (storage(count=-1), "refers to torch.FloatStorage"),
        (b"I1\n", "opcode INT is not one"),
        (b"P1\n", "opcode PERSID is not one"),
        (b"(i__builtin__\ndict\n", "opcode INST is not one"),
    ],
)
def test_what_torch_save_does_not_write_is_refused(pickled, said):
    with pytest.raises(CheckpointError, match=f"refused: .*{said}"):
        unpickle(START + pickled + b".")


@pytest.mark.parametrize(
    "key",
    [
        b"K\x01K\x02\x86",
        b"(" + used_again(60) + b"h\x3ct",
        number(2**61 - 1 << 64),
        b"ctyping\nAny\n",
        storage(),
    ],
)
def test_no_hash_takes_long(key):
    """A key of tuples of tuples: 600 bytes, 2 ** 60 steps. Equal hashes of large numbers are easy to find."""
    with pytest.raises(CheckpointError, match=r"^refused: a key that is no text or number$"):
        unpickle(START + entries(key, b"N") + b".")


def test_values_that_are_not_plain_are_named():
    made = entries(
        *(text("a"), number(1 << 100)),
        *(text("b"), b"c__builtin__\nbytearray\n\x8a\x05" + (4 << 30).to_bytes(5, "little") + b"\x85R"),
        *(text("c"), b"ctorch._utils\n_rebuild_sparse_tensor\n)R"),
        *(text("d"), b"ctorch\nSize\n(K\x01K\x02t\x85R"),
        *(text("e"), used_again(2)),
    )
    pair = (1, 2)
    assert unpickle(START + made + b".").content == {
        "a": Opaque("large number"),
        "b": Opaque("bytearray"),  # of any size: it is not made
        "c": Opaque("Tensor"),
        "d": (1, 2),
        "e": [pair, (pair, pair), ((pair, pair), (pair, pair))],
    }


@pytest.mark.parametrize(
    ("pickled", "said"),
    [
        (CONFIG_CLASS + b"K\x01\x85\x81", r"makes an object of omegaconf\.dictconfig\.DictConfig"),
        (
            REBUILD
            + b"("
            + storage()
            + b"K\x00"
            + sizes([4])
            + sizes([1])
            + b"\x89)}"
            + b"X\x03\0\0\0neg\x88stR",
            "a tensor whose numbers are negated or conjugated",
        ),
    ],
)
def test_what_is_not_read_is_refused(pickled, said):
    with pytest.raises(CheckpointError, match=f"^refused: .*{said}"):
        unpickle(START + pickled + b".")


@pytest.mark.parametrize(
    ("shape", "strides", "offset"), [([5], [1], 0), ([4], [1], 1), ([2, 2], [3, 1], 0), ([1], [1], 4)]
)
def test_no_tensor_reaches_beyond_its_storage(shape, strides, offset):
    made = (
        REBUILD
        + b"("
        + storage()
        + number(offset)
        + sizes(shape)
        + sizes(strides)
        + b"\x89"
        + ORDERED
        + b")RtR"
    )
    with pytest.raises(
        CheckpointError, match=r"^corrupt: a tensor reaches beyond storage 0; fetch it again$"
    ):
        unpickle(START + made + b".")


def test_an_empty_tensor_may_be_anywhere():
    made = (
        REBUILD + b"(" + storage() + number(9) + sizes([3, 0]) + sizes([1, 1]) + b"\x89" + ORDERED + b")RtR"
    )
    assert unpickle(START + made + b".").content == Tensor(Storage("0", "F32", 4), 9, (3, 0), (1, 1))


def test_views_of_storages_in_old_files():
    def view(first: bytes, size: bytes) -> bytes:
        return storage()[:-2] + b"(" + text("v") + first + size + b"ttQ"

    made = REBUILD + b"(" + view(b"K\x01", b"K\x03") + b"K\x01" + sizes([2]) + sizes([1]) + b"\x89)tR"
    assert unpickle(START + made + b".").content == Tensor(Storage("0", "F32", 4, 1), 2, (2,), (1,))
    with pytest.raises(ValueError, match="a view beyond its storage"):
        unpickle(START + view(b"K\x02", b"K\x03") + b".")


def test_copies_of_containers_are_counted(monkeypatch):
    """Each call may copy one of them."""
    pairs = b"]q\x00(" + (b"]" + b"(" + text("a") + b"Ne") * 10 + b"e"
    pickled = START + pairs + (ORDERED + b"h\x00\x85R") * 5 + b"t."
    pickled = pickled.replace(pairs, b"(" + pairs)
    assert unpickle(pickled).content[1:] == ({"a": None},) * 5
    taken = module._Reader.count  # of 50 values that are copied
    steps = 0

    def count(reader: module._Reader, number: int) -> None:
        nonlocal steps
        steps += number
        taken(reader, number)

    monkeypatch.setattr(module._Reader, "count", count)
    unpickle(pickled)
    plain = pickled.replace(ORDERED + b"h\x00\x85R", b"N")
    with_copies, steps = steps, 0
    unpickle(plain)
    assert with_copies >= steps + 50
    monkeypatch.setattr(module, "MOST_STEPS", with_copies - 1)
    with pytest.raises(CheckpointError, match=f"refused: more than {with_copies - 1} opcodes and values"):
        unpickle(pickled)


@pytest.mark.parametrize("given", ["call", "storage"])
def test_argument_tuples_are_bounded(given):
    """One stored tuple of N arguments, passed to N calls, would take N * N steps."""
    more = b"N" * (17 - 6 if given == "call" else 17 - 5)
    start = tensor()[:-2] if given == "call" else storage()[:-2]
    long = START + start + more + (b"tR." if given == "call" else b"tQ.")
    with pytest.raises(CheckpointError, match=r"^refused: a call with 17 arguments; at most 16 are read$"):
        unpickle(long)


def test_values_that_are_taken_are_counted(monkeypatch):
    """A tuple of N values costs N steps wherever it is built, so that no few opcodes move many."""
    monkeypatch.setattr(module, "MOST_STEPS", 40)
    assert unpickle(START + b"(" + b"N" * 15 + b"t.").content == (None,) * 15
    with pytest.raises(CheckpointError, match="more than 40 opcodes and values"):
        unpickle(START + b"(" + b"N" * 19 + b"t.")


def test_a_storage_of_two_types_is_refused():
    """PyTorch reads both as the first one."""
    ints = storage().replace(b"FloatStorage", b"IntStorage")
    with pytest.raises(CheckpointError, match=r"^refused: storage 0 is of two types, F32 and I32$"):
        unpickle(START + entries(text("a"), tensor(), text("b"), tensor(held=ints)) + b".")


@pytest.mark.parametrize("length", [2**31 - 1, 2**40, 2**62, 2**63, 2**64 - 1])
def test_a_length_that_no_memory_holds_is_refused(length):
    with pytest.raises((CheckpointError, ValueError), match=r"."):
        unpickle(START + b"\x8d" + length.to_bytes(8, "little") + b"abc.")


def test_sizes(monkeypatch):
    pickled = START + entries(text("a"), text("b" * 100)) + b"."
    unpickle(pickled)
    with monkeypatch.context() as patch:
        patch.setattr(module, "LARGEST_PICKLE", 50)
        with pytest.raises(CheckpointError, match="more than 50 bytes of opcodes"):
            unpickle(pickled)
    with monkeypatch.context() as patch:
        patch.setattr(module, "MOST_STEPS", 5)
        with pytest.raises(CheckpointError, match="more than 5 opcodes and values"):
            unpickle(pickled)
    octets = START + ENCODE + b"q\x00" + text("x" * 60) + b"q\x01" + text("latin1") + b"q\x02\x86R"
    twice = b"h\x00h\x01h\x02\x86R\x86."
    unpickle(octets + twice)
    monkeypatch.setattr(module, "MOST_BYTES", 100)
    with pytest.raises(CheckpointError, match="more than 100 bytes in byte strings"):
        unpickle(octets + twice)


@pytest.mark.parametrize(
    "pickled",
    [
        b"",
        START + b"K\x01",
        START + b"K\x01K\x02.",
        START + b"}(.",
        START + b"h\x07.",
        START + b"e.",
        START + REBUILD + b"(NK\x00))tR.",
        START + b"\x85.",
        START + tensor([-1]) + b".",
        START + tensor([2, 2]) + b".",
        START + tensor(strides=[-1]) + b".",
        START + entries(text("a"), storage(count=4), text("b"), storage(count=5)) + b".",
        START + b"X\xff\xff\xff\x7fa.",
        b"\x80\x02c\xff\n\xff\n.",
    ],
)
def test_damage(pickled):
    with pytest.raises(ValueError, match=r"."):
        unpickle(pickled)


CLOSED = b"t\x86."  # the mark's tuple, and a pair of the value below it and that
BELOW_THE_MARK = {  # pickles that would be read if the mark were not there, and the same without it
    "TUPLE1": (b"K\x01(\x85", b"K\x01\x85"),
    "TUPLE2": (b"K\x01(K\x02\x86", b"K\x01K\x02\x86"),
    "TUPLE3": (b"K\x01K\x02(K\x03\x87", b"K\x01K\x02K\x03\x87"),
    "APPEND": (b"](K\x01a", b"]K\x01a"),
    "APPENDS": (b"]((K\x01e", b"](K\x01e"),
    "SETITEM": (b"}(K\x01K\x02s", b"}K\x01K\x02s"),
    "SETITEMS": (b"}((K\x01K\x02u", b"}(K\x01K\x02u"),
    "NEWOBJ": (CONFIG_CLASS + b"()\x81", CONFIG_CLASS + b")\x81"),
    "REDUCE": (ORDERED + b"()R", ORDERED + b")R"),
    "BUILD": (CONFIG_CLASS + b")\x81(}b", CONFIG_CLASS + b")\x81}b"),
    "BINPERSID": (storage()[:-1] + b"(Q", storage()),
    "BINPUT": (b"}(q\x00", b"}q\x00"),
    "LONG_BINPUT": (b"}(r\x00\x00\x00\x00", b"}r\x00\x00\x00\x00"),
}
KNOWN_TO_PYTHON = BELOW_THE_MARK.keys() - {"NEWOBJ", "BUILD", "BINPERSID"}  # no class, no storage


@pytest.mark.parametrize("opcode", BELOW_THE_MARK)
def test_no_opcode_reaches_below_the_mark(opcode):
    below, above = (START + data for data in BELOW_THE_MARK[opcode])
    with pytest.raises(ValueError, match="the stack is empty"):
        unpickle(below + CLOSED)
    unpickle(above + b".")
    if opcode in KNOWN_TO_PYTHON:
        with pytest.raises(pickle.UnpicklingError, match="MARK"):
            pickle.loads(below + CLOSED)
        pickle.loads(above + b".")


def short(content: bytes) -> bytes:
    """A text as Python 2 writes it."""
    return b"U" + bytes([len(content)]) + content


def test_bytes_of_python_2_that_are_no_text_are_damage():
    with pytest.raises(ValueError, match="utf-8"):
        unpickle(START + entries(short(b"\xff"), b"N") + b".")


@pytest.mark.parametrize(
    ("pickled", "said"),
    [
        (b"T\x01\x00\x00\x00a", "a long text of Python 2"),
        (b"C\x01a", "a byte string of protocol 3"),
        (b"B\x01\x00\x00\x00a", "a byte string of protocol 3"),
    ],
)
def test_strings_that_torch_does_not_read_are_named(pickled, said):
    with pytest.raises(
        CheckpointError, match=f"refused: {said}, which torch cannot read without code; where"
    ):
        unpickle(START + pickled + b".")


@pytest.mark.parametrize("kind", ["torch ComplexFloatStorage", "torch.storage UntypedStorage"])
def test_types_of_numbers_that_are_not_read_are_named(kind):
    module, _, name = kind.partition(" ")
    with pytest.raises(CheckpointError, match=rf"it has tensors of {module}\.{name}, which are not read"):
        unpickle(START + f"c{module}\n{name}\n.".encode())


def test_a_file_is_left_after_the_pickle():
    stream = BoundedReader(io.BytesIO(START + b"N." + b"the rest"))  # pyright: ignore[reportArgumentType]
    unpickle(stream)
    assert stream.read() == b"the rest"


def test_opcodes_take_linear_work():
    def work(count: int) -> None:
        unpickle(START + entries(*(text(f"name{i}") + tensor() for i in range(count))) + b".")

    assert growth(work, 50) < MOST


def fuzz(seed: int, count: int) -> int:
    """Measure `count` damaged pickles; the number of those that were refused."""
    rng = random.Random(seed)
    whole = (
        START
        + entries(text("a"), tensor(), text("b"), used_again(3), text("c"), CONFIG_CLASS + b")\x81}b")
        + b"."
    )
    refused = 0
    for _ in range(count):
        changed = bytearray(whole)
        for _ in range(rng.choice((1, 1, 2, 5))):
            at = rng.randrange(len(changed))
            if rng.random() < 0.5:
                changed[at] = rng.choice(whole) if rng.random() < 0.7 else rng.randrange(256)
            else:
                piece = bytes(changed[at : at + rng.randrange(1, 20)])
                changed[at : at + rng.choice((0, len(piece)))] = piece if rng.random() < 0.5 else b""
        try:
            unpickle(bytes(changed))
        except (CheckpointError, ValueError):
            refused += 1
    return refused


def test_damaged_pickles_are_measured_or_refused():
    assert fuzz(0, 2000) > 1000


@pytest.mark.slow
def test_many_damaged_pickles():
    for seed in range(1, 41):
        fuzz(seed, 20_000)

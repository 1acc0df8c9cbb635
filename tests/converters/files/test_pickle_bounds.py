"""Bounds of a pickle: what torch.save writes is proved cheap, what costs more is refused or doubted."""

import io
import pickle
import random

import pytest

from converters.files import pickle_bounds
from converters.files.pickle_bounds import measure
from tests.converters.files.opcodes import (
    ENCODE,
    ORDERED,
    REBUILD,
    START,
    entries,
    number,
    short,
    storage,
    tensor,
    text,
    used_again,
)
from tests.tts_core.growth import MOST, growth
from tts_core.errors import CheckpointError

CONFIG_CLASS = b"comegaconf.dictconfig\nDictConfig\n"
DICT, ANY = b"c__builtin__\ndict\n", b"ctyping\nAny\n"


def test_tensors_and_settings_are_proved_cheap():
    shared = tensor(held=storage()) + b"q\x01"
    bounds = measure(
        START
        + entries(
            text("a"), shared, text("b"), b"h\x01", text("c"), ENCODE + text("x") + text("latin1") + b"\x86R"
        )
        + b"."
    )
    assert bounds.doubt is None
    assert bounds.storages == {"0": 16}
    assert bounds.names == {
        "torch._utils _rebuild_tensor_v2",
        "torch FloatStorage",
        "collections OrderedDict",
        "_codecs encode",
    }


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
        measure(START + pickled + b".")


@pytest.mark.parametrize(
    ("pickled", "said"),
    [
        (entries(text("a"), used_again(40), text("b"), b"}h\x28K\x01s"), "a tuple is used again"),
        (entries(b"K\x01K\x02\x86", b"N"), "a key that is no text or number"),
        (entries(number(2**61 - 1 << 64), b"N"), "a number of more than 64 bits"),
        (b"ccollections\nCounter\n]\x85R", "it asks for collections.Counter"),
        (ORDERED + b"]\x85R", "a call of collections.OrderedDict"),
        (b"ctorch\nfloat32\n", "it asks for torch.float32"),
        (CONFIG_CLASS + b"K\x01\x85\x81", "an object of omegaconf.dictconfig.DictConfig"),
    ],
)
def test_what_cannot_be_proved_is_doubted(pickled, said):
    assert measure(START + pickled + b".").doubt == said


def test_containers_that_are_used_again_are_counted(monkeypatch):
    """Each use may copy it: a call or attributes."""
    pickled = START + b"]q\x00" + b"](" + b"h\x00" * 50 + b"e\x86."
    assert measure(pickled).doubt is None
    monkeypatch.setattr(pickle_bounds, "MOST_WORK", 1000)
    assert measure(pickled).doubt == "50 containers are used again among 58 opcodes"


def test_sizes(monkeypatch):
    pickled = START + entries(text("a"), text("b" * 100)) + b"."
    measure(pickled)
    with monkeypatch.context() as patch:
        patch.setattr(pickle_bounds, "LARGEST_PICKLE", 50)
        with pytest.raises(CheckpointError, match="more than 2000000 opcodes, or 50 bytes"):
            measure(pickled)
    with monkeypatch.context() as patch:
        patch.setattr(pickle_bounds, "MOST_OPCODES", 5)
        with pytest.raises(CheckpointError, match="more than 5 opcodes"):
            measure(pickled)
    octets = START + ENCODE + b"q\x00" + text("x" * 60) + b"q\x01" + text("latin1") + b"q\x02\x86R"
    twice = b"h\x00h\x01h\x02\x86R\x86."
    measure(octets + twice)
    monkeypatch.setattr(pickle_bounds, "MOST_BYTES", 100)
    with pytest.raises(CheckpointError, match="more than 100 bytes in byte strings"):
        measure(octets + twice)


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
        START + entries(text("a"), storage(count=4), text("b"), storage(count=5)) + b".",
        START + b"X\xff\xff\xff\x7fa.",
        b"\x80\x02c\xff\n\xff\n.",
    ],
)
def test_damage(pickled):
    with pytest.raises(ValueError, match=r"."):
        measure(pickled)


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
        measure(below + CLOSED)
    measure(above + b".")
    if opcode in KNOWN_TO_PYTHON:
        with pytest.raises(pickle.UnpicklingError, match="MARK"):
            pickle.loads(below + CLOSED)
        pickle.loads(above + b".")


@pytest.mark.parametrize("protocol", [2, 3])
def test_protocols_2_and_3_are_proved(protocol):
    assert measure(pickle.dumps({"a": 1, "b": [2.5, "text", True, None, 1 << 40]}, protocol)).doubt is None


def test_texts_of_python_2_are_keys_and_names():
    held = (
        b"("
        + short(b"storage")
        + b"ctorch.cuda\nHalfStorage\n"
        + short(b"0")
        + short(b"cuda:0")
        + b"K\x04NtQ"
    )
    bounds = measure(START + entries(short("\u00e9".encode()), tensor(held=held)) + b".")
    assert (bounds.doubt, bounds.storages) == (None, {"0": 8})
    assert "torch.cuda HalfStorage" in bounds.names


def test_bytes_of_python_2_that_are_no_text_are_damage():
    with pytest.raises(ValueError, match="utf-8"):
        measure(START + entries(short(b"\xff"), b"N") + b".")


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
        measure(START + pickled + b".")


def test_the_first_tensors_of_torch_are_proved():
    rebuild = b"ctorch._utils\n_rebuild_tensor\n(" + storage() + b"K\x00K\x04\x85K\x01\x85tR"
    assert measure(START + entries(text("a"), rebuild) + b".").doubt is None
    with pytest.raises(CheckpointError, match="33 axes"):
        measure(
            START + b"ctorch._utils\n_rebuild_tensor\n(" + storage() + b"K\x00(" + b"K\x01" * 33 + b"t)tR."
        )


@pytest.mark.parametrize("kind", ["torch ComplexFloatStorage", "torch.storage UntypedStorage"])
def test_types_of_numbers_that_are_not_read_are_named(kind):
    module, _, name = kind.partition(" ")
    with pytest.raises(CheckpointError, match=rf"it has tensors of {module}\.{name}, which are not read"):
        measure(START + f"c{module}\n{name}\n.".encode())


def test_a_file_is_left_after_the_pickle():
    stream = io.BytesIO(START + b"N." + b"the rest")
    measure(stream)
    assert stream.read() == b"the rest"


def test_opcodes_take_linear_work():
    def work(count: int) -> None:
        measure(START + entries(*(text(f"name{i}") + tensor() for i in range(count))) + b".")

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
            measure(bytes(changed))
        except (CheckpointError, ValueError):
            refused += 1
    return refused


def test_damaged_pickles_are_measured_or_refused():
    assert fuzz(0, 2000) > 1000


@pytest.mark.slow
def test_many_damaged_pickles():
    for seed in range(1, 41):
        fuzz(seed, 20_000)

"""Headers of safetensors files: refused in time that grows with their size, never more."""

import json
import random
from pathlib import Path

import pytest

from tests.converters.folders import write_raw
from tests.tts_core.growth import MOST, growth
from tts_core.errors import CheckpointError
from tts_core.files import header
from tts_core.files.header import MOST_AXES, read_header

ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def fault(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        read_header(path)
    said = str(caught.value)
    assert said.startswith(f"{path}: ")
    assert "\n" not in said
    assert len(said) < 1000
    return said


def text_of(entries: dict[str, object]) -> bytes:
    return json.dumps(entries).encode()


@pytest.mark.parametrize("axes", [MOST_AXES, MOST_AXES + 1, 100_000])
def test_axes(tmp_path, axes):
    path = tmp_path / "x.safetensors"
    write_raw(path, text_of({"a": ENTRY | {"shape": [1] * (axes - 1) + [2]}}), bytes(8))
    if axes <= MOST_AXES:
        assert len(read_header(path)[0]["a"].shape) == axes
    else:
        assert f"a has {axes} axes, at most 32 are supported" in fault(path)


def test_a_shape_larger_than_any_memory_is_refused_though_it_holds_nothing(tmp_path):
    entry = {"dtype": "F32", "shape": [0, 2**40, 2**40], "data_offsets": [0, 0]}
    write_raw(tmp_path / "x.safetensors", text_of({"a": entry}))
    assert "more than any memory" in fault(tmp_path / "x.safetensors")


def many(count: int, *, twice: bool, shape: list[int]) -> bytes:
    """A header of many empty tensors, of which the last two may have one name."""
    names = [f"name{i}" for i in range(count - 1)] + [f"name{count - 2 if twice else count - 1}"]
    entry = json.dumps({"dtype": "F32", "shape": shape, "data_offsets": [0, 0]})
    return ("{" + ",".join(f'"{name}":{entry}' for name in names) + "}").encode()


@pytest.mark.parametrize("twice", [False, True])
def test_tensors_take_linear_work(tmp_path, twice):
    def work(count: int) -> None:
        path = tmp_path / f"{count}.safetensors"
        if not path.exists():
            write_raw(path, many(count, twice=twice, shape=[0]))
        if twice:
            assert f"it has name{count - 2} twice" in fault(path)
        else:
            read_header(path)

    assert growth(work, 400) < MOST


def test_axes_take_linear_work(tmp_path):
    def work(count: int) -> None:
        path = tmp_path / f"{count}.safetensors"
        if not path.exists():
            write_raw(path, text_of({"a": ENTRY | {"shape": [2**62] * count}}), bytes(8))
        fault(path)

    assert growth(work, 500) < MOST


def test_a_header_of_another_size_than_any_model_s_is_not_read(tmp_path, monkeypatch):
    path = tmp_path / "x.safetensors"
    write_raw(path, text_of({"a": ENTRY}) + b" " * 100, bytes(8))
    read_header(path)
    monkeypatch.setattr(header, "LARGEST_HEADER", 100)
    assert "at most 100 are read" in fault(path)


def test_a_length_beyond_the_file_is_not_allocated(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes((2**63 - 1).to_bytes(8, "little") + bytes(100))
    assert "the file has 108" in fault(path)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b'{"\xff\xfe": {}}', "invalid utf-8"),
        (b'{"a": ' * 100_000, "recursion"),
        (b'{"a": {"dtype": "F32", "shape": [' + b"9" * 10_000 + b"]}}", "number out of range"),
        (b'{"a": [' + b"[]," * 100_000 + b"[]]}", "invalid type: sequence"),
        (text_of({"a": ENTRY | {"shape": [[]] * 20}}), "invalid type: sequence, expected usize"),
        (text_of({"a": ENTRY | {"dtype": "F" * 100_000}}), "unknown variant `FFF"),
        (text_of({"a": ENTRY | {"data_offsets": list(range(100_000))}}), "expected 2 elements"),
    ],
)
def test_damage_is_one_line_with_its_reason(tmp_path, raw, said):
    write_raw(tmp_path / "x.safetensors", raw, bytes(8))
    assert said in fault(tmp_path / "x.safetensors")


def test_overlaps_holes_and_bytes_after_the_end(tmp_path):
    path = tmp_path / "x.safetensors"
    for offsets, extra, said in (
        ([4, 12], b"", "invalid offset for tensor `b`"),
        ([12, 20], bytes(4), "invalid offset for tensor `b`"),
        ([8, 16], bytes(1), "longer than its header says: the file has"),
        ([8, 24], b"", "invalid shape, data type, or offset"),
    ):
        write_raw(path, text_of({"a": ENTRY, "b": ENTRY | {"data_offsets": offsets}}), bytes(16) + extra)
        assert said in fault(path)


def seeded(rng: random.Random, whole: bytes) -> bytes:
    """A file with bytes changed, cut, repeated or inserted, mostly in its header."""
    changed = bytearray(whole)
    end = len(changed) if rng.random() < 0.2 else 8 + int.from_bytes(whole[:8], "little")
    for _ in range(rng.choice((1, 1, 1, 3, 20))):
        at = rng.randrange(min(end, len(changed)))
        match rng.randrange(5):
            case 0:
                changed[at] = rng.randrange(256)
            case 1:
                changed[at] ^= 1 << rng.randrange(8)
            case 2:
                del changed[at : at + rng.randrange(1, 40)]
            case 3:
                changed[at:at] = changed[at : at + rng.randrange(1, 40)]
            case _:
                changed[at:at] = rng.choice((b"[", b"{", b'"', b"9" * 30, b"-", b"1e999", b"NaN", b"\\ud800"))
        if not changed:
            break
    return bytes(changed)


def fuzz(folder: Path, seed: int, count: int) -> int:
    """Read `count` damaged headers; the number of those that were refused."""
    rng, path, refused = random.Random(seed), folder / "x.safetensors", 0
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for i in range(6):
        shape = [rng.randrange(1, 5) for _ in range(i % 4)]
        size = 4
        for each in shape:
            size *= each
        entries[f"layer.{i}.weight"] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    write_raw(path, text_of(entries), bytes(at))
    whole = path.read_bytes()
    for _ in range(count):
        path.write_bytes(seeded(rng, whole))
        try:
            stored, _ = read_header(path)
        except CheckpointError:
            refused += 1
            continue
        size = path.stat().st_size
        assert all(0 <= tensor.begin <= tensor.end <= size for tensor in stored.values())
    return refused


def test_damaged_headers_are_read_or_refused(tmp_path):
    assert fuzz(tmp_path, 0, 500) > 300


@pytest.mark.slow
def test_many_damaged_headers(tmp_path):
    for seed in range(1, 41):
        fuzz(tmp_path, seed, 5000)

"""Converting: the contents of a folder, written once and completely, or not at all."""

import errno
import hashlib
import json
import os
import shutil
from collections import namedtuple

import numpy as np
import pytest
from safetensors.numpy import save_file

from converters import convert as converting
from converters.convert import convert, outline
from converters.files import destination, writer
from converters.files.dtypes import narrow, widen
from converters.files.writer import SafetensorsWriter
from converters.published import open_published
from converters.rules.dequantize import BITS, Quantization
from tests.converters.folders import (
    DAC_HF,
    DAC_PTH,
    V_0626,
    V_0626_HF,
    V_V01,
    assert_same,
    files_of,
    left_in,
    read_all,
    write_safetensors,
)
from tts_core.dia.config import is_norm
from tts_core.errors import CheckpointError, NotFoundError, ResourceError, UsageError
from tts_core.files.header import read_header
from tts_core.shapes import mlx_axes
from tts_core.text.rules import TextRules


def test_a_converted_folder_holds_everything(source, tmp_path):
    report = convert(source, tmp_path / "out")
    assert left_in(tmp_path) == ["out"]
    assert left_in(tmp_path / "out") == [
        *(
            "README.md",
            "codec",
            "config.json",
            "conversion.json",
            "model.safetensors",
            "model.safetensors.index.json",
        )
    ]
    config = json.loads((tmp_path / "out/config.json").read_text())
    envelope = {
        name: config.pop(name) for name in ("model_type", "weights_layout", "format_version", "dtype")
    }
    assert envelope == {"model_type": "dia", "weights_layout": "mlx", "format_version": 2, "dtype": "float32"}
    assert config == json.loads(json.dumps(source.parts["dia"].config.to_dict()))
    assert json.loads((tmp_path / "out/codec/config.json").read_text())["model_type"] == "dac"
    assert report == json.loads((tmp_path / "out/conversion.json").read_text())
    said = report["parts"]["dia"]
    assert said["map"] == "dia_transformers"
    assert said["source_tensors"] == said["tensors"] == len(source.parts["dia"].names())
    digest = hashlib.sha256((V_0626_HF / "model.safetensors").read_bytes()).hexdigest()
    assert said["files"] == [
        {
            "name": "model.safetensors",
            "bytes": os.path.getsize(source.parts["dia"].files[0]),
            "sha256": digest,
        }
    ]
    card = (tmp_path / "out/README.md").read_text()
    assert "library_name: mlx" in card
    assert "pipeline_tag: text-to-speech" in card
    assert str(tmp_path) not in card + json.dumps(report)


def test_mlx_reads_what_was_written_with_the_codec_in_its_layout(source, tmp_path):
    mx = pytest.importorskip("mlx.core", reason="MLX reads the folder")
    convert(source, tmp_path / "out")
    index = json.loads((tmp_path / "out/model.safetensors.index.json").read_text())
    weights, metadata = mx.load(str(tmp_path / "out/model.safetensors"), return_metadata=True)
    assert metadata == {"format": "mlx"}
    assert set(weights) == set(index["weight_map"]) == set(source.parts["dia"].names())
    assert index["metadata"]["total_size"] == sum(array.nbytes for array in weights.values())
    for name, array in weights.items():
        np.testing.assert_array_equal(np.array(array), source.parts["dia"].read(name))
    for name, array in mx.load(str(tmp_path / "out/codec/model.safetensors")).items():
        tensor = source.parts["dac"].read(name)
        axes = mlx_axes(source.parts["dac"].shape(name))
        np.testing.assert_array_equal(np.array(array), tensor.transpose(axes) if axes else tensor)


def test_both_layouts_make_the_same_folder(source, tmp_path):
    convert(source, tmp_path / "one")
    convert(open_published(V_0626, codec=DAC_HF), tmp_path / "two")
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")


@pytest.mark.parametrize("folder", [V_0626, V_V01], ids=lambda path: path.name)
def test_canonical_tensors_survive_the_round_trip(tmp_path, folder):
    published = open_published(folder, codec=DAC_PTH)
    convert(published, tmp_path / "out")
    again = open_published(tmp_path / "out")
    assert (again.parts["dia"].layout, again.parts["dac"].layout) == ("mlx", "mlx")
    assert again.parts["dia"].config == published.parts["dia"].config
    assert again.parts["dac"].config == published.parts["dac"].config
    assert_same(read_all(again.parts["dia"]), read_all(published.parts["dia"]))
    assert_same(read_all(again.parts["dac"]), read_all(published.parts["dac"]))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_norms_stay_float32_and_the_rest_is_rounded_once(source, tmp_path, dtype):
    convert(source, tmp_path / "out", dtype=dtype)
    code = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}[dtype]
    stored, _ = read_header(tmp_path / "out/model.safetensors")
    again = open_published(tmp_path / "out")
    assert again.parts["dia"].dtype == dtype
    for name in source.parts["dia"].names():
        assert stored[name].dtype == ("F32" if is_norm(name) else code)
        expected = source.parts["dia"].read(name)
        rounded = expected if is_norm(name) else widen(narrow(expected, code), code)
        np.testing.assert_array_equal(again.parts["dia"].read(name), rounded)
    assert {tensor.dtype for tensor in read_header(tmp_path / "out/codec/model.safetensors")[0].values()} == {
        "F32"
    }


def test_converting_again_changes_nothing(source, tmp_path):
    convert(source, tmp_path / "one", dtype="bfloat16")
    convert(open_published(tmp_path / "one"), tmp_path / "two")
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")


def test_text_rules_are_carried_over_and_can_be_edited(tmp_path):
    """From a published folder; a folder without them has none; unreadable ones are refused."""
    given = json.dumps(TextRules(ends=".").to_dict()) + "\r\n"
    shutil.copytree(V_0626_HF, tmp_path / "published")
    (tmp_path / "published/text.json").write_bytes(given.encode())
    published = open_published(tmp_path / "published", codec=DAC_HF)
    assert published.parts["dia"].documents == {"text.json": given}
    convert(published, tmp_path / "out")
    assert (tmp_path / "out/text.json").read_bytes() == given.encode()
    (tmp_path / "out/text.json").write_text('{"spoken": "xx"}')
    with pytest.raises(CheckpointError, match=r"text\.json: missing alphabet"):
        convert(open_published(tmp_path / "out"), tmp_path / "again")


def test_dtype_follows_the_source_unless_given(source, tmp_path):
    convert(source, tmp_path / "half", dtype="float16")
    assert outline(open_published(tmp_path / "half")).dtype == "float16"
    assert outline(open_published(tmp_path / "half"), dtype="float32").dtype == "float32"
    assert outline(source).dtype == "float32"


def test_the_dtype_is_that_of_most_numbers_and_not_of_most_tensors(tmp_path):
    """Norms in float32 are many tensors of few numbers."""
    shutil.copytree(V_0626_HF, tmp_path / "model", copy_function=shutil.copyfile)
    kept = open_published(V_0626_HF, codec=DAC_HF).parts["dia"].checkpoint
    tensors = {name: kept.read(name) for name in kept.shapes}
    order = sorted(tensors, key=lambda name: tensors[name].size)
    halves = {name: narrow(tensors[name], "BF16") for name in order[len(order) * 2 // 3 :]}
    assert sum(one.size for one in halves.values()) > sum(one.size for one in tensors.values()) / 2
    write_safetensors(tmp_path / "model/model.safetensors", tensors | halves)
    assert open_published(tmp_path / "model", codec=DAC_HF).parts["dia"].dtype == "bfloat16"


def test_a_float64_source_is_written_as_float32(source, tmp_path):
    """MLX does not use float64, and the folder's readers know three dtypes."""
    wide = {name: source.parts["dia"].read(name).astype(np.float64) for name in source.parts["dia"].names()}
    (tmp_path / "wide").mkdir()
    save_file(wide, tmp_path / "wide/model.safetensors", {"format": "pt"})
    for name in ("config.json", "generation_config.json"):
        if (V_0626_HF / name).is_file():
            shutil.copyfile(V_0626_HF / name, tmp_path / "wide" / name)
    opened = open_published(tmp_path / "wide", codec=DAC_HF)
    assert set(opened.parts["dia"].checkpoint.dtypes.values()) == {"F64"}
    assert convert(opened, tmp_path / "out")["dtype"] == "float32"
    convert(source, tmp_path / "plain")
    assert files_of(tmp_path / "out") == files_of(tmp_path / "plain")
    stored, _ = read_header(tmp_path / "out/model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {"F32"}


# quantization

MODES = [
    Quantization.of(mode, None if mode != "affine" else 32, bits) for mode in BITS for bits in BITS[mode]
]


@pytest.mark.parametrize("how", MODES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_quantised_layers_are_mlxs_own(source, tmp_path, how, dtype):
    mx = pytest.importorskip("mlx.core", reason="MLX quantises")
    from mlx import nn

    report = convert(source, tmp_path / "out", dtype=dtype, quantization=how)
    weights = mx.load(str(tmp_path / "out/model.safetensors"))
    config = json.loads((tmp_path / "out/config.json").read_text())
    said = report["parts"]["dia"]["quantization"]
    assert config["quantization"] == config["quantization_config"] == said
    assert report["quantization"] == how.to_dict()
    assert {key: config["quantization"][key] for key in ("mode", "bits", "group_size")} == how.to_dict()
    again = open_published(tmp_path / "out").parts["dia"]
    for name in source.parts["dia"].names():
        layer = name.removesuffix(".weight")
        large = name.endswith(("_proj.weight", "logits_dense.weight"))
        divides = source.parts["dia"].shape(name)[-1] % how.group_size == 0
        assert (f"{layer}.scales" in weights) == (large and divides)
        assert (config["quantization"].get(layer) is False) == (large and not divides)
        if f"{layer}.scales" not in weights:
            continue
        values = mx.array(source.parts["dia"].read(name))
        if how.has_biases:  # scales in the requested dtype; scales of other modes have their own type
            values = values.astype(getattr(mx, dtype))
        plain = nn.Linear(values.shape[1], values.shape[0], bias=False)
        plain.weight = values
        expected = nn.QuantizedLinear.from_linear(plain, how.group_size, how.bits, mode=how.mode)
        layer_weights = {kind: weights[f"{layer}.{kind}"] for kind in expected.parameters()}
        for kind, array in expected.parameters().items():
            assert mx.array_equal(array, layer_weights[kind]).item(), f"{layer}.{kind}"
        options = how.to_dict() | {"dtype": mx.float32}
        wide = [
            array.astype(mx.float32) if array.dtype == mx.bfloat16 else array
            for array in layer_weights.values()
        ]
        named = dict(zip(layer_weights, wide, strict=True))
        order = [named[kind] for kind in ("weight", "scales", "biases") if kind in named]
        np.testing.assert_array_equal(again.read(name), np.array(mx.dequantize(*order, **options)))
    assert report["parts"]["dia"]["quantized_layers"] > 0


def test_a_quantised_folder_is_not_quantised_again_but_can_be_dequantised(source, tmp_path):
    pytest.importorskip("mlx.core", reason="MLX quantises")
    how = Quantization.of("affine", 32, 8)
    convert(source, tmp_path / "quantised", quantization=how)
    opened = open_published(tmp_path / "quantised")
    assert opened.parts["dia"].quantization is not None
    with pytest.raises(UsageError, match=r"^-q: .* is already quantized; give the unquantized model"):
        outline(opened, quantization=how)
    convert(opened, tmp_path / "plain")
    plain = open_published(tmp_path / "plain")
    assert plain.parts["dia"].quantization is None
    assert_same(read_all(plain.parts["dia"]), read_all(opened.parts["dia"]))


def test_it_is_an_error_if_nothing_can_be_quantised(source):
    with pytest.raises(UsageError, match=r"no layer of .* has a width that is a multiple of 128"):
        outline(source, quantization=Quantization.of("affine", 128))


def test_quantising_without_mlx_says_what_to_install(source, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "mlx.core", None)
    with pytest.raises(NotFoundError, match=r"pip install 'mlx-port\[cpu\]'"):
        convert(source, tmp_path / "out", quantization=Quantization.of("affine", 32))
    assert left_in(tmp_path) == []


# written completely or not at all


def test_existing_destination_is_refused_before_anything_is_written(source, tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match="out exists; give another name, or --force"):
        convert(source, tmp_path / "out")
    assert left_in(tmp_path / "out") == []


def test_force_replaces_a_converted_folder_only_once_the_new_one_is_complete(source, tmp_path, monkeypatch):
    convert(source, tmp_path / "out")
    before = files_of(tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr(converting, "card_of", lambda *_: (_ for _ in ()).throw(RuntimeError("late")))
        with pytest.raises(RuntimeError):
            convert(source, tmp_path / "out", dtype="bfloat16", force=True)
    assert files_of(tmp_path / "out") == before
    convert(source, tmp_path / "out", dtype="bfloat16", force=True)
    assert files_of(tmp_path / "out") != before
    assert left_in(tmp_path) == ["out"]


def test_what_appears_meanwhile_is_not_replaced(source, tmp_path):
    def progress(_: int) -> None:
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out/other").touch()

    with pytest.raises(UsageError, match="out appeared meanwhile, another conversion was faster"):
        convert(source, tmp_path / "out", progress=progress)
    assert left_in(tmp_path) == ["out"]
    assert left_in(tmp_path / "out") == ["other"]


def test_force_leaves_alone_what_we_did_not_write(source, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home/letter.txt").write_text("dear")
    (tmp_path / "file").write_text("a file")
    (tmp_path / "link").symlink_to(tmp_path / "home")
    for name in ("home", "file", "link"):
        with pytest.raises(UsageError, match="--force does not replace it"):
            convert(source, tmp_path / name, force=True)
    assert (tmp_path / "home/letter.txt").exists()


def test_force_does_not_destroy_the_source(source, tmp_path):
    convert(source, tmp_path / "out")
    with pytest.raises(UsageError, match=r"contains model\.safetensors, which is converted"):
        convert(open_published(tmp_path / "out"), tmp_path / "out", force=True)


def test_free_space_must_hold_the_tensors_and_16_mb(source, tmp_path, monkeypatch):
    """16 MiB for headers, descriptions and the file system's rounding; the message includes them."""
    usage = namedtuple("usage", "total used free")
    needed = outline(source).nbytes + 16 * 2**20
    free = [needed - 1]
    monkeypatch.setattr(destination.shutil, "disk_usage", lambda _: usage(10**12, 10**12, free[0]))
    with monkeypatch.context() as patch:
        patch.setattr(writer, "SafetensorsWriter", None)
        with pytest.raises(ResourceError, match="has 20 MB free, 20 MB are needed"):
            convert(source, tmp_path / "deep/er/out")
    assert left_in(tmp_path) == []
    free[0] += 1
    convert(source, tmp_path / "out")
    assert left_in(tmp_path) == ["out"]


@pytest.mark.parametrize("failing", range(0, 60, 7))
def test_a_disk_that_fills_leaves_nothing(source, tmp_path, monkeypatch, failing):
    count = iter(range(1000))
    original = SafetensorsWriter._write

    def full(self, data):
        if next(count) == failing:
            raise OSError(errno.ENOSPC, "No space left on device")
        original(self, data)

    monkeypatch.setattr(SafetensorsWriter, "_write", full)
    with pytest.raises(ResourceError, match=r"disk of .* is full"):
        convert(source, tmp_path / "new/out")
    assert left_in(tmp_path) == []


def test_folder_that_cannot_be_written(source, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        convert(source, tmp_path / "file/out")


REFUSED = (UsageError, 2, "cannot be written")
FULL = (ResourceError, 5, "is full; nothing was left there")
FAILED = (ResourceError, 5, "failed (Input/output error); nothing was left there")


@pytest.mark.parametrize(
    ("name", "kind", "code", "said"),
    [
        *[(name, *REFUSED) for name in ("EROFS", "EACCES", "EPERM")],
        *[(name, *FULL) for name in ("ENOSPC", "EDQUOT", "EFBIG")],
        ("EIO", *FAILED),
    ],
)
def test_each_fault_of_a_disk_has_its_exit_code(source, tmp_path, monkeypatch, name, kind, code, said):
    number = getattr(errno, name)
    opened = []

    def fail(self, data):
        opened.append(self)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(SafetensorsWriter, "_write", fail)
    with pytest.raises(kind) as caught:
        convert(source, tmp_path / "out")
    assert caught.value.exit_code == code
    assert opened[0]._file.closed
    assert str(caught.value).startswith("DST: ")
    assert said in str(caught.value)
    assert left_in(tmp_path) == []


def test_progress_adds_up_to_the_outline(source, tmp_path):
    written: list[int] = []
    convert(source, tmp_path / "out", progress=written.append)
    assert sum(written) == outline(source).nbytes


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_none(source, tmp_path, monkeypatch, value):
    read = type(source.parts["dia"]).read

    def damaged(self, name, memory):
        tensor = read(self, name, memory)
        return np.where(np.arange(24) == 3, np.float32(value), tensor) if "norm" in name else tensor

    monkeypatch.setattr(type(source.parts["dia"]), "read", damaged)
    published = open_published(V_0626_HF, codec=DAC_HF)
    with pytest.raises(CheckpointError, match=r"pre_sa_norm\.weight contains NaN or infinite"):
        convert(published, tmp_path / "out")
    assert left_in(tmp_path) == []


def test_weights_too_large_for_float16(source, tmp_path, monkeypatch):
    read = type(source.parts["dia"]).read
    monkeypatch.setattr(type(source.parts["dia"]), "read", lambda *given: read(*given) * np.float32(1e6))
    with pytest.raises(CheckpointError, match="does not fit in float16; choose --dtype bfloat16"):
        convert(source, tmp_path / "out", dtype="float16")


def test_license_of_the_source_is_kept(tmp_path):
    shutil.copytree(V_0626_HF, tmp_path / "model")
    (tmp_path / "model").chmod(0o755)
    (tmp_path / "model/README.md").write_text("---\nlicense: apache-2.0\ntags: [x]\n---\n# Hello\n")
    convert(open_published(tmp_path / "model", codec=DAC_HF), tmp_path / "out")
    assert "\nlicense: apache-2.0\n" in (tmp_path / "out/README.md").read_text()

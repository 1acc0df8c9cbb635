"""mlx_port.load: folders that it reads, and one clear error for everything else."""

import gc
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx.utils import tree_flatten

from converters.convert import convert
from converters.published import open_published
from converters.rules.dequantize import Quantization
from mlx_port import DiaPipeline, load, loading
from mlx_port.dia import pipeline
from mlx_port.stored_voice import converted_voice
from tests.tiny.published_models import edit, sources
from tests.tiny.record import record_again
from tts_core.dia.config import is_norm
from tts_core.errors import CheckpointError, NotFoundError, SpeechError, UsageError
from tts_core.text.rules import NO_RULES, TextRules
from tts_core.voice.embedded import CODEC, DIA

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(converted: Path, tmp_path: Path) -> Path:
    """A copy that tests damage."""
    return Path(shutil.copytree(converted, tmp_path / "copy"))


def test_a_converted_folder_speaks(converted: Path) -> None:
    voice = DiaPipeline.load(converted)
    result = voice.generate("[S1] Hello.", seed=1, max_frames=5)
    assert result.codes.shape == (4, 5)
    assert voice.sample_rate == voice.codec_config.sample_rate == 1000
    assert str(DiaPipeline.load(str(converted)).config) == str(voice.config)


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("stored", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("backend", ["mlx-cpu", "mlx-metal"])
def test_half_precision_that_nobody_chose_is_named_on_a_cpu(
    tmp_path: Path, monkeypatch: Any, caplog: Any, backend: str, stored: str, quantized: bool
) -> None:
    """A GPU is fast in it; the folder runs as it is stored, and in float32 if asked."""
    how = Quantization.of("affine", 32, 4) if quantized else None
    folder = tmp_path / "half"
    convert(open_published(sources("mars5"), offline=True), folder, dtype=stored, quantization=how)
    monkeypatch.setattr(loading, "backend_name", lambda: backend)
    wanted = [f"mlx: {stored}, as this folder is stored, is slow on a CPU; dtype float32 is faster"]
    slow = stored != "float32" and backend == "mlx-cpu"
    for chosen in (None, "float32", "bfloat16"):
        caplog.clear()
        loaded: Any = load(folder, dtype=chosen)
        assert loaded.engine.host.dtype == (chosen or stored)
        assert caplog.messages == (wanted if slow and chosen is None else [])


@pytest.mark.parametrize("read", [load, DiaPipeline.load], ids=["load", "typed"])
def test_loading_prepares_the_process(
    read: Callable[[Path], object], converted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cache is bounded before weights are read, then kernels are tried, and memory is wired after."""
    done: list[str] = []
    for module, name in (
        (loading, "bound_cache"),
        (loading, "_fill"),
        (pipeline, "try_kernels"),
        (loading, "wire"),
    ):
        made = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, name=name, made=made: done.append(name) or made(*a))
    read(converted)
    assert done == ["bound_cache", "_fill", "_fill", "try_kernels", "wire"]


def test_text_rules_are_the_folders_own(converted: Path, tmp_path: Path) -> None:
    """No rules without the file; a user's edits apply; a broken file is refused."""
    assert DiaPipeline.load(converted).rules == NO_RULES
    copy = Path(shutil.copytree(converted, tmp_path / "copy"))
    rules = TextRules(ends="!")
    (copy / "text.json").write_text(json.dumps(rules.to_dict()))
    assert DiaPipeline.load(copy).rules == rules
    (copy / "text.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"copy: text\.json: not readable as JSON: .*; convert again"):
        load(copy)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_dtype(converted: Path, dtype: Any) -> None:
    """The network takes the dtype, norms and codec stay float32; it still speaks."""
    voice = DiaPipeline.load(converted, dtype=dtype)
    for name, value in tensors(voice.engine.network):
        assert value.dtype == (mx.float32 if is_norm(name) else getattr(mx, dtype)), name
    assert {value.dtype for _, value in tensors(voice.engine.codec)} == {mx.float32}
    [codes] = voice.generate_codes(["[S1] Hello."], seed=1, max_frames=5)
    assert codes.shape == (4, 5)
    tokens = mx.zeros((1, 1, 4), dtype=mx.int32)
    network = voice.engine.network
    source = network.read([mx.array([5, 6])], None)
    assert network.next_logits(tokens, network.new_cache(), source).dtype == mx.float32


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_loading_takes_one_tensor_more_than_what_stays(dtype: Any) -> None:
    """With the embedded voice, stored in float32. MLX frees an array shortly after its last use."""
    folder = converted_voice()
    largest = max(value.nbytes for _, value in tensors(DiaPipeline.load(folder).engine.network))
    gc.collect()  # networks of other tests
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    voice = DiaPipeline.load(folder, dtype=dtype)
    held = mx.get_active_memory() - before
    parts = voice.engine.network, voice.engine.codec
    assert sum(value.nbytes for part in parts for _, value in tensors(part)) <= held
    assert mx.get_peak_memory() - before <= held + 2 * largest


def tensors(network: nn.Module) -> list[tuple[str, mx.array]]:
    return cast(list[tuple[str, mx.array]], tree_flatten(network.parameters()))


def test_dtype_is_the_folders_own(published: Path, tmp_path: Path) -> None:
    from converters.convert import convert
    from converters.published import open_published

    convert(open_published(published, offline=True), tmp_path / "half", dtype="bfloat16")
    voice = DiaPipeline.load(tmp_path / "half")
    assert voice.engine.network.logits_dense.weight.dtype == mx.bfloat16
    wide = DiaPipeline.load(tmp_path / "half", dtype="float32")
    assert wide.engine.network.logits_dense.weight.dtype == mx.float32


def test_unknown_dtype(converted: Path) -> None:
    with pytest.raises(UsageError, match=r"^dtype: 'float64' is not one of float32, bfloat16, float16$"):
        load(converted, dtype="float64")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("place", [DIA, CODEC], ids=["dia", "codec"])
def test_published_layouts_are_refused(place: Path) -> None:
    with pytest.raises(CheckpointError, match=r"published weights.*convert-weights --hf-path") as caught:
        load(place)
    one_line(caught.value)


def change(name: str, how: Callable[[dict], object]) -> Callable[[Path], None]:
    return lambda folder: edit(folder / name, how)


def rewrite(name: str, edit: Callable[[dict[str, mx.array]], object]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        weights = mx.load(str(folder / name))
        assert isinstance(weights, dict)
        mx.eval(list(weights.values()))
        edit(weights)
        mx.save_safetensors(str(folder / name), weights, {"format": "mlx"})
        record_again(folder)

    return damage


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def cut(name: str, stop: int) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).write_bytes((folder / name).read_bytes()[:stop])

    return damage


HEAD, NORM = "logits_dense.weight", "model.decoder.norm.weight"
DAMAGES = {
    "another format": (
        change("config.json", lambda c: c.update(format_version=1)),
        "format 1, not 2; convert",
    ),
    "another codec format": (
        change("codec/config.json", lambda c: c.update(format_version=0)),
        "codec has format 0, not 2",
    ),
    "another model": (change("config.json", lambda c: c.update(model_type="parrot")), "not converted ones"),
    "unknown field": (change("config.json", lambda c: c.update(strange=1)), "strange"),
    "missing field": (change("config.json", lambda c: c.pop("delay_pattern")), "delay_pattern"),
    "a list for a size": (change("config.json", lambda c: c.update(encoder_config=[])), "encoder_config"),
    "a text for a size": (
        change("codec/config.json", lambda c: c.update(hidden_size="wide")),
        "hidden_size 'wide'",
    ),
    "half a quantisation": (
        change("config.json", lambda c: c.update(quantization={"bits": 4})),
        r"config.json: quantization: .*'group_size': None.* is no known mode",
    ),
    "no JSON": (lambda folder: (folder / "config.json").write_text("{"), "config.json: not readable as JSON"),
    "no config": (remove("config.json"), "without config.json"),
    "no codec config": (remove("codec/config.json"), "codec: a folder without config.json"),
    "no weights": (remove("model.safetensors"), "model.safetensors: it is missing"),
    "two faults": (
        rewrite("model.safetensors", lambda w: (w.pop(HEAD), w.update(extra=w[NORM]))),
        rf"extra unknown; {HEAD} missing",
    ),
    "wrong shape": (
        rewrite("model.safetensors", lambda w: w.update({HEAD: w[HEAD].T})),
        rf"{HEAD} is float \(44, 268\), expected float \(268, 44\)",
    ),
    "PyTorch's axes": (
        rewrite(
            "codec/model.safetensors",
            lambda w: w.update({"encoder.conv2.weight": w["encoder.conv2.weight"].transpose(0, 2, 1)}),
        ),
        "encoder.conv2.weight is",
    ),
    "whole numbers": (
        rewrite("model.safetensors", lambda w: w.update({HEAD: w[HEAD].astype(mx.int32)})),
        rf"{HEAD} is mlx.core.int32 \(268, 44\), expected float",
    ),
    "cut in the last tensor": (
        cut("model.safetensors", -1),
        r"model.safetensors: \d+ bytes, on record are \d+",
    ),
    "cut in the header": (
        lambda folder: (cut("model.safetensors", 100)(folder), record_again(folder)),
        "truncated: its header takes",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_folder_is_one_clear_error(name: str, folder: Path) -> None:
    damage, message = DAMAGES[name]
    damage(folder)
    with pytest.raises((CheckpointError, NotFoundError), match=message) as caught:
        load(folder)
    one_line(caught.value)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("place", ["", "codec"])
def test_a_stray_file_does_not_replace_the_weights(place: str, folder: Path) -> None:
    """A backup with other numbers under the same names, last by name, is not used."""
    file = folder / place / "model.safetensors"
    weights = cast(dict[str, mx.array], mx.load(str(file)))
    mx.save_safetensors(
        str(folder / place / "model_backup.safetensors"), {n: 0 * v for n, v in weights.items()}
    )
    with pytest.raises(CheckpointError, match=r"model_backup.safetensors: not on record in conversion.json"):
        load(folder)


def flip(file: Path) -> None:
    """Flip the lowest bit of the last number."""
    content = bytearray(file.read_bytes())
    content[-4] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("name", ["model.safetensors", "codec/model.safetensors", "codec/config.json"])
def test_hashes_are_compared_when_asked(name: str, folder: Path) -> None:
    load(folder, check=True)
    if name.endswith(".json"):
        change(name, lambda config: config.update(sample_rate=1001))(folder)
    else:
        flip(folder / name)
    if name.endswith(".safetensors"):
        load(folder)
    for read in (load, DiaPipeline.load):
        with pytest.raises(CheckpointError, match=f"{name}: changed since the conversion"):
            read(folder, check=True)


@pytest.mark.parametrize("place", ["no/such/folder", "~/nowhere", "org/model.pt"])
def test_no_such_folder(place: str) -> None:
    with pytest.raises(NotFoundError, match="no such folder; give a folder that convert-weights wrote"):
        load(place)


def test_no_such_hub_id() -> None:
    with pytest.raises(NotFoundError, match="model: org/model is not in the hub's cache on this machine"):
        load("org/model")


def one_line(error: SpeechError) -> None:
    assert "\n" not in str(error)
    assert len(str(error)) < 600


def test_generates_without_torch(converted: Path) -> None:
    """In a process that cannot import torch, including the embedded voice's conversion."""
    script = f"""
import sys
sys.modules["torch"] = None
import mlx_port
from converters.convert import convert
from converters.published import open_published
from converters.rules.dequantize import Quantization
from mlx_port import DiaPipeline, load, loading
from mlx_port.stored_voice import converted_voice
from tests.tiny.record import record_again
print(load({str(converted)!r}).generate("[S1] Hello.", seed=1, max_frames=5).codes.tolist())
result = mlx_port.generate("[S1] Hi.", seed=1, max_frames=4)
assert result.codes.shape == (8, 4) and result.samples == 4 * 480
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    expected = load(converted).generate("[S1] Hello.", seed=1, max_frames=5).codes
    np.testing.assert_array_equal(np.array(json.loads(done.stdout)), expected)

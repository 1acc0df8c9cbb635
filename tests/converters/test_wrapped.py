"""Names with the prefixes of wrapped models, for every model: torch.compile, DataParallel, peft."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
from safetensors.numpy import load_file, save_file

from converters.files.folders import open_checkpoint
from converters.published import Published, open_published
from tests.converters.folders import DAC_HF, DAC_PTH, V_0626, V_0626_HF, assert_same, read_all
from tests.tiny.dia2 import published_dia2
from tests.tiny.published_models import FIRST, header, pickled, sources
from tests.tiny.qwen3 import write_published
from tts_core.errors import CheckpointError, NotFoundError

torch = pytest.importorskip("torch", reason="torch is not installed: it writes the pickles")

PREFIXES = ("_orig_mod.", "module.", "module._orig_mod.", "_orig_mod.module.", "base_model.model.")
WHOLE = {
    "dia in nari's layout": lambda folder: [V_0626, DAC_PTH],
    "dia in transformers' layout": lambda folder: [V_0626_HF, DAC_HF],
    "dia2": lambda folder: [published_dia2(folder / "dia2")],
    "mars5": lambda folder: sources("mars5"),
    "metavoice": lambda folder: sources("metavoice"),
    "qwen3": lambda folder: [write_published(folder / "qwen3", "base")],
}


def wrap(source: Path, target: Path, change: Callable[[str], str]) -> None:
    """Copy a file, or a folder with its subfolders, with other names of all tensors."""
    if source.is_dir():
        for file in source.iterdir():
            wrap(file, target / file.name, change)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix == ".safetensors":
        tensors = {change(name): each for name, each in load_file(source).items()}
        save_file(tensors, target, header(source))
        for sizes in source.parent.glob(f"{source.stem}.json"):  # of MARS5's networks
            shutil.copy(sizes, target.parent)
    elif source.suffix in (".pt", ".pth", ".th", ".bin"):
        content = pickled(source)
        inner = next((key for key in ("model", "state_dict", "model_state") if key in content), None)
        named = {change(name): each for name, each in (content[inner] if inner else content).items()}
        torch.save(content | {inner: named} if inner else named, target)
    else:
        shutil.copyfile(source, target)


def opened(folder: Path, places: list[Path], change: Callable[[str], str]) -> Published:
    made = []
    for number, place in enumerate(places):
        made.append(folder / str(number) / place.name)
        wrap(place, made[-1], change)
    return open_published(made, offline=True)


@pytest.mark.skipif(not FIRST.is_file(), reason=f"{FIRST} is missing")
@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("model", WHOLE)
def test_every_part_of_every_model_reads_wrapped_names(tmp_path, model, prefix):
    places = WHOLE[model](tmp_path / "plain")
    expected = open_published(places, offline=True)
    found = opened(tmp_path / "wrapped", places, lambda name: prefix + name.removeprefix("_orig_mod."))
    assert found.parts.keys() == expected.parts.keys()
    for kind, part in found.parts.items():
        assert (part.layout, part.config) == (expected.parts[kind].layout, expected.parts[kind].config)
        assert_same(read_all(part), read_all(expected.parts[kind]))


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_a_tensor_with_and_without_a_prefix_is_refused(tmp_path, suffix):
    file = tmp_path / f"model{suffix}"
    tensors = {name: torch.zeros(2) for name in ("a", "module.a")}
    safetensors.torch.save_file(tensors, file) if suffix == ".safetensors" else torch.save(tensors, file)
    with pytest.raises(CheckpointError, match=f"{file}: a is also in it with another prefix"):
        open_checkpoint([file])


def test_an_adapter_is_named(tmp_path):
    at = "base_model.model.talker.model.layers.0.self_attn.q_proj"
    halves = {f"{at}.lora_{half}.weight": np.zeros((2, 2), np.float32) for half in "AB"}
    save_file(halves, tmp_path / "adapter_model.safetensors")
    with pytest.raises(NotFoundError, match=r"adapter_model.safetensors: a LoRA adapter; merge it"):
        open_published(tmp_path, offline=True)


def test_an_adapter_beside_its_model_is_left_out(tmp_path):
    folder = write_published(tmp_path / "qwen3")
    save_file({"x.lora_A.weight": np.zeros((2, 2), np.float32)}, folder / "adapter_model.safetensors")
    found = open_published(folder, offline=True)
    assert "LoRA" in found.ignored["adapter_model.safetensors"]

"""Published files that only some sets have, converted: other layouts, pickles, multi-band diffusion."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from safetensors import safe_open

from converters.convert import convert
from converters.published import open_published
from tests.golden.cases import DEFAULT, golden_root
from tts_core.files.json_object import read_json

mx = pytest.importorskip("mlx.core", reason="mlx is not installed: it reads what is written")
pytest.importorskip("torch", reason="torch is not installed: the published pickles need it")

pytestmark = pytest.mark.golden

MARS5, METAVOICE = golden_root() / "mars5", golden_root() / "metavoice"
STAGES = ("first_stage.pt", "second_stage.pt", "speaker_encoder.pt")
VOCOS = DEFAULT / "mars5" / "vocos_tiny"  # any voice
BANDS = METAVOICE / "mbd_comp_8.pt"
PICKLES = [file for file in sorted(MARS5.glob("*.pt")) if file.with_suffix(".safetensors").exists()]
ENCODECS = [  # (weights, configuration), in transformers' layout
    (MARS5 / about["checkpoint"], MARS5 / about["config"])
    for about in map(read_json, sorted(MARS5.glob("encodec*_io.json")))
    if "config" in about
]
if (METAVOICE / "encodec.safetensors").exists():
    ENCODECS.append((METAVOICE / "encodec.safetensors", METAVOICE / "encodec_config" / "config.json"))


def stored(folder: Path) -> dict[str, np.ndarray]:
    tensors = cast(dict, mx.load(str(folder / "model.safetensors")))
    return {name: np.array(tensor.astype(mx.float32)) for name, tensor in tensors.items()}


if PICKLES:

    @pytest.mark.parametrize("file", PICKLES, ids=lambda file: f"mars5/{file.name}")
    def test_a_pickle_holds_what_its_safetensors_hold(file: Path) -> None:
        """Compare tensors, as safetensors itself reads them, and the configuration."""
        [part] = open_published(file, parts=["mars5"]).parts.values()
        [other] = open_published(file.with_suffix(".safetensors"), parts=["mars5"]).parts.values()
        assert part.config == other.config
        assert part.documents == other.documents
        with safe_open(file.with_suffix(".safetensors"), "np") as opened:
            assert len(part.names()) == len(opened.keys())
        for name in part.names():
            np.testing.assert_array_equal(part.read(name), other.read(name), err_msg=name)


if ENCODECS:

    @pytest.mark.parametrize(("weights", "config"), ENCODECS, ids=[file.stem for file, _ in ENCODECS])
    def test_encodec_in_the_layout_of_transformers(weights: Path, config: Path, tmp_path: Path) -> None:
        """Read with its configuration and without; converted, and read again."""
        part = open_published(weights, parts=["encodec"]).parts["encodec"]
        assert part.layout == "encodec_transformers"
        (tmp_path / "with").mkdir()
        shutil.copy(weights, tmp_path / "with/model.safetensors")
        shutil.copy(config, tmp_path / "with/config.json")
        stated = open_published(tmp_path / "with", parts=["encodec"]).parts["encodec"]
        assert stated.config == part.config
        convert(open_published(weights, parts=["encodec"]), tmp_path / "out")
        again = open_published(tmp_path / "out", parts=["encodec"]).parts["encodec"]
        for name in part.names():
            np.testing.assert_array_equal(again.read(name), part.read(name), err_msg=name)


if BANDS.exists() and (METAVOICE / "encodec.safetensors").exists():

    def test_metavoice_with_multi_band_diffusion(tmp_path: Path) -> None:
        given = [METAVOICE / name for name in (*STAGES, "encodec.safetensors")] + [VOCOS, BANDS]
        part = open_published(given, include=["mbd"]).parts["mbd"]
        convert(open_published(given, include=["mbd"]), tmp_path / "out")
        made = stored(tmp_path / "out/mbd")
        assert made.keys() == set(part.names())
        for name in part.names():
            value, transposed = part.read(name), ".convtr." in name
            axes = ((1, 2, 0) if transposed else (0, 2, 1)) if value.ndim == 3 else range(value.ndim)
            np.testing.assert_array_equal(made[name], value.transpose(axes), err_msg=name)
        assert "cc-by-nc-4.0" in (tmp_path / "out/README.md").read_text()
        convert(open_published(tmp_path / "out"), tmp_path / "again")  # kept in a folder that has it
        again = stored(tmp_path / "again/mbd")
        assert made.keys() == again.keys()
        for name, tensor in made.items():
            np.testing.assert_array_equal(again[name], tensor, err_msg=name)

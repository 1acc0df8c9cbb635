"""MARS5 and MetaVoice into torch networks: dtypes, several sources, single parts, single bands."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.tiny.mbd import CONFIG as MBD_CONFIG
from tests.tiny.mbd import published_content
from tests.tiny.mbd import write_published as write_mbd
from tests.tiny.networks import tiny
from tests.tiny.published_models import AR, ENCODEC, NAR, SOURCES, sources, tensors
from torch_ref.loading import open_networks, open_parts
from tts_core import models
from tts_core.errors import CheckpointError, NotFoundError, UsageError

MODELS = list(SOURCES)
LARGE = ("mars5", "mars5_nar", "metavoice")  # networks that take the requested dtype


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
@pytest.mark.parametrize("model", MODELS)
def test_dtype(model, dtype):
    """Codecs and small networks stay float32; with float64 they are float64."""
    for kind, network in open_networks(sources(model), device="cpu", dtype=dtype).items():
        assert not network.training
        for name, value in network.named_parameters():
            own = kind in LARGE and not models.network(kind).stays_float32(name)
            wide = torch.float64 if dtype == "float64" else torch.float32
            assert value.dtype == (getattr(torch, dtype) if own else wide), (kind, name)
            assert value.device.type == "cpu"


def test_numbers_are_those_of_the_file_in_half_precision():
    network = open_networks(AR, kinds=["mars5"], device="cpu", dtype="bfloat16")["mars5"]
    for name, value in network.named_parameters():
        expected = torch.from_numpy(tensors("mars5")[name].astype(np.float32))
        assert torch.equal(value, expected.to(value.dtype)), name


@pytest.mark.parametrize("model", MODELS)
def test_parts_without_weights(monkeypatch, model):
    monkeypatch.setattr("torch_ref.loading._fill", lambda *_: pytest.fail("weights were read"))
    parts = open_parts(sources(model), device="cpu")
    assert parts.model == model
    assert list(parts.configs) == list(SOURCES[model])
    named = {kind: tuple(texts) for kind, texts in parts.documents.items() if texts}
    assert named == {kind: models.network(kind).documents for kind in named}


def test_parts_that_do_not_belong_together_are_refused_before_weights_are_read(monkeypatch, tmp_path):
    held = torch.load(ENCODEC, weights_only=True)
    few = {name: tensor for name, tensor in held.items() if ".layers.7." not in name or "vq" not in name}
    torch.save(few, tmp_path / "encodec.th")
    monkeypatch.setattr("torch_ref.loading._fill", lambda *_: pytest.fail("weights were read"))
    with pytest.raises(CheckpointError, match="EnCodec: 7 codebooks"):
        open_parts([AR, NAR, SOURCES["mars5"]["vocos"]], codec=tmp_path / "encodec.th", device="cpu")
    with pytest.raises(NotFoundError, match="missing: weights of MARS5"):
        open_parts(NAR, device="cpu")
    with pytest.raises(UsageError, match="--config: not for MetaVoice"):
        open_parts(sources("metavoice"), config=NAR.with_suffix(".json"), device="cpu")


def test_bands_are_read_one_by_one(tmp_path: Path):
    write_mbd(tmp_path / "mbd_comp_8.pt", published_content(MBD_CONFIG, tiny("mbd").tensors))
    for dtype, wide in (("float32", torch.float32), ("bfloat16", torch.float32), ("float64", torch.float64)):
        network = open_networks(tmp_path, kinds=["mbd"], device="cpu", dtype=dtype)["mbd"]
        for b in range(len(MBD_CONFIG.bands)):
            read = network.band_weights(b)
            for name, tensor in read.items():
                assert tensor.dtype == wide
                expected = torch.from_numpy(tiny("mbd").tensors[f"bands.{b}.{name}"])
                assert torch.equal(tensor, expected.to(wide)), name
            assert len(read) == sum(name.startswith(f"bands.{b}.") for name in tiny("mbd").tensors)

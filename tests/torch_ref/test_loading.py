"""torch_ref.load: published folders and converted ones, in every dtype."""

import inspect
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from converters.convert import convert
from converters.published import open_published
from tests.tiny.networks import dia_config, tiny
from torch_ref import DiaPipeline, generate, load
from torch_ref.loading import How, open_parts
from tts_core.dia.config import is_norm
from tts_core.dia.options import DEFAULTS_V01
from tts_core.errors import CheckpointError, NotFoundError, UsageError


def test_a_published_folder_speaks(published: Path) -> None:
    """With the file's weights, the sampling of generation_config.json, and the folder's own codec."""
    voice = DiaPipeline.load(published)
    assert voice.config == dia_config()
    state = voice.engine.network.state_dict()
    weights = tiny("dia", seed=3, eos=1.3).tensors
    assert state.keys() == weights.keys()
    for name, tensor in weights.items():
        np.testing.assert_array_equal(state[name].numpy(), tensor, err_msg=name)
    assert not voice.engine.network.training
    assert not voice.engine.codec.training
    assert voice.generate("[S1] Hello.", seed=1, max_frames=5).codes.shape == (4, 5)
    again = generate("[S1] Hello.", published, seed=1, max_frames=5)
    np.testing.assert_array_equal(again.codes, generate("[S1] Hello.", voice, seed=1, max_frames=5).codes)


def test_the_codec_from_elsewhere(published: Path, tmp_path: Path) -> None:
    bare = Path(shutil.copytree(published, tmp_path / "models" / "bare"))
    shutil.move(bare / "codec", tmp_path / "dac")
    voice = DiaPipeline.load(bare, codec=tmp_path / "dac")
    assert voice.generate("[S1] Hello.", seed=1, max_frames=2).samples > 0
    with pytest.raises(NotFoundError, match="DAC"):
        load(bare)


@pytest.mark.parametrize("name", ["nosuch", "nobody/nothing"])
def test_what_is_not_there_is_named_as_an_argument(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python has no flags."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(NotFoundError, match=f"^model: {name} is not") as caught:
        load(name)
    assert "--" not in str(caught.value)


@pytest.mark.parametrize("place", ["", "codec"])
def test_a_stray_file_in_a_converted_folder_is_refused(place: str, published: Path, tmp_path: Path) -> None:
    """Without the check it would replace the converted weights, since it is first in the alphabet."""
    folder = tmp_path / "converted"
    convert(open_published(published), folder)
    weights = folder / place / "model.safetensors"
    save_file(
        {name: 0 * value for name, value in load_file(weights).items()}, weights.with_name("a.safetensors")
    )
    for source in (folder, weights):
        with pytest.raises(CheckpointError, match=r" a.safetensors: not on record in conversion.json"):
            load(source, codec=folder / "codec" if source == weights and not place else None)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_dtype(published: Path, dtype: Any) -> None:
    """Dtype of the network; norms and the codec stay float32, except that float64 applies to everything."""
    voice = DiaPipeline.load(published, dtype=dtype)
    network, wide = voice.engine.network, torch.float64 if dtype == "float64" else torch.float32
    for name, tensor in network.state_dict().items():
        assert tensor.dtype == (wide if is_norm(name) else getattr(torch, dtype)), name
    assert {tensor.dtype for tensor in voice.engine.codec.state_dict().values()} == {wide}
    result = voice.generate("[S1] Hello.", seed=1, max_frames=5)
    assert result.codes.shape == (4, 5)
    assert result.audio.dtype == np.float32
    tokens, source = torch.zeros(1, 2, 4, dtype=torch.long), network.read([torch.tensor([5, 6])])
    with torch.inference_mode():
        assert network(tokens, network.new_cache(), source).dtype == wide
        assert network.next_logits(tokens, network.new_cache(), source).dtype == wide


def test_cross_rope_overrides_the_schema(published: Path) -> None:
    voice = DiaPipeline.load(published, cross_rope=True)
    assert voice.config.cross_rope
    assert voice.engine.network.model.decoder.cross_rope
    assert (
        voice.config.sampling.temperature == dia_config().sampling.temperature
    )  # from generation_config.json
    (copy := published.parent / "bare").mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(published / name, copy)
    assert DiaPipeline.load(copy, codec=published / "codec", cross_rope=True).config.sampling == DEFAULTS_V01
    codes = [
        each.generate_codes(["[S1] Hello."], temperature=0, max_frames=9)[0]
        for each in (voice, DiaPipeline.load(published))
    ]
    assert (codes[0] != codes[1]).any()


def test_a_converted_folder_is_the_published_one(published: Path, tmp_path: Path) -> None:
    convert(open_published(published, offline=True), tmp_path / "converted", dtype="float32")
    ours, theirs = DiaPipeline.load(tmp_path / "converted"), DiaPipeline.load(published)
    assert ours.config == theirs.config
    for one, two in ((ours.engine.network, theirs.engine.network), (ours.engine.codec, theirs.engine.codec)):
        for (name, tensor), other in zip(one.state_dict().items(), two.state_dict().values(), strict=True):
            assert torch.equal(tensor, other), name
    shutil.rmtree(tmp_path / "converted/codec")
    elsewhere = DiaPipeline.load(tmp_path / "converted", codec=published / "codec")
    assert elsewhere.codec_config == theirs.codec_config


def test_damage_is_one_clear_error(published: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(published, tmp_path / "cut"))
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"model\.safetensors") as caught:
        load(folder)
    assert "\n" not in str(caught.value)
    with pytest.raises(NotFoundError):
        load(tmp_path / "nowhere")


def test_the_typed_arguments_are_those_of_the_function() -> None:
    given = inspect.signature(load).parameters
    assert list(How.__annotations__) == [name for name in given if name not in ("path", "model")]


def test_the_precision_of_the_codec(published: Path) -> None:
    """Only codecs have one; on this machine's CPU only float32 is taken."""
    parts = open_parts(published, device="cpu", codec_precision="float32")
    parts.codec_precision = "tf32"
    assert parts.network("dac").precision == "tf32"
    assert parts.machine().codec_precision == "tf32", "the memory plan's"
    assert not hasattr(parts.network("dia"), "precision")
    with pytest.raises(UsageError, match=r"^codec_precision: tf32 is for CUDA; cpu decodes in float32"):
        load(published / "nowhere", device="cpu", codec_precision="tf32")


def test_a_loaded_codecs_precision_is_that_of_the_memory_plan(published: Path) -> None:
    """Also after it was replaced."""
    engine = DiaPipeline.load(published, device="cpu").engine
    assert engine.host.machine().codec_precision == "float32"
    engine.codec.precision = "bfloat16"
    assert engine.host.machine(engine.policy).codec_precision == "bfloat16"

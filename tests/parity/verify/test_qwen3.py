"""The layers of Qwen3-TTS that verify runs one by one are the networks in sequence, each within its bound."""

import numpy as np
import pytest
import torch

from converters.convert import convert
from converters.published import open_published
from converters.rules.dequantize import Quantization
from mlx_port.commands.verify.run import trace
from tests.sides import ORACLE
from tests.tiny.qwen3 import write_published
from torch_ref.layerwise import Layerwise
from tts_core.codecs import qwen3_codec
from tts_core.errors import UsageError
from tts_core.nn.ladder import Given, ladder
from tts_core.qwen3.config import MODES, Qwen3Config, parameter_shapes
from tts_core.qwen3.ladder import tensor_group
from tts_core.qwen3.layer_order import predictor_stages, speaker_stages, talker_stages
from tts_core.qwen3.spec import qwen3

pytestmark = pytest.mark.rest


@pytest.mark.parametrize(
    "config", [qwen3("0b6", "base"), qwen3("1b7", "custom_voice")], ids=["base", "custom"]
)
def test_every_tensor_belongs_to_one_stage(config):
    names = list(parameter_shapes(config))
    stages = [*talker_stages(config), *predictor_stages(config), *speaker_stages(config)]
    claimed = [name for stage in stages for name in stage.tensors(names)]
    assert sorted(claimed) == sorted(names)
    assert all(map(tensor_group, names))


def test_every_tensor_of_the_codec_belongs_to_one_stage():
    config = qwen3_codec.QWEN3_CODEC_12HZ
    names = list(qwen3_codec.parameter_shapes(config))
    stages = [*qwen3_codec.encode_stages(config), *qwen3_codec.decode_stages(config)]
    assert sorted(name for stage in stages for name in stage.tensors(names)) == sorted(names)


@pytest.fixture(scope="module", params=MODES)
def published(request, tmp_path_factory):
    return write_published(tmp_path_factory.mktemp("qwen3") / request.param, request.param)


def test_the_layers_in_a_row_are_the_networks(published):
    parts = open_published(published, offline=True).parts
    configs = {kind: part.config for kind, part in parts.items()}
    documents = {kind: part.documents for kind, part in parts.items()}
    given = Given(configs, documents, 9, 0.8, 0)
    networks = {kind: ORACLE.network(kind, part) for kind, part in parts.items()}
    runs = {"talker": talker, "predictor": predictor, "speaker": speaker}
    seen = []
    for rung in ladder("qwen3", given):
        state = rung.state(given)
        layers = Layerwise(rung.layers, configs[rung.kind], parts[rung.kind], "float64")
        whole = trace(rung.stages, layers.run, state).whole
        given.made.update({name: whole[name] for name in rung.keeps})
        with torch.inference_mode():
            if rung.part == "codec":
                check_codec(networks["qwen3_codec"], state, whole)
            else:
                expected = runs[rung.part](networks["qwen3"], state)
                for name, array in expected.items():
                    np.testing.assert_allclose(whole[name], array, rtol=0, atol=1e-11, err_msg=name)
        seen.append(rung.part)
    assert seen == [
        "codec",
        "codec",
        "talker",
        "predictor",
        *(["speaker"] if "base" in str(published) else []),
    ]


def check_codec(codec, state, whole) -> None:
    if "hidden" in state:
        expected = codec.encode(state["hidden"][:, 0])
        np.testing.assert_array_equal(whole["codes"], expected)
        assert len(np.unique(expected)) > 5
    else:
        np.testing.assert_allclose(whole["audio"], codec.decode(state["codes"]), rtol=0, atol=1e-12)


def talker(network, state) -> dict[str, np.ndarray]:
    own = network.talker
    frames, text = (torch.from_numpy(state[name]).long() for name in ("frames", "text"))
    hidden = own(own.embed_frames(frames) + own.embed_text(text), 0, own.new_cache())
    return {"rows": hidden.numpy(), "logits": own.logits(hidden).numpy()}


def predictor(network, state) -> dict[str, np.ndarray]:
    own, read = network.talker.code_predictor, torch.from_numpy(state["stages"]).double()
    cache = own.new_cache()
    logits = [own(0, read[:, :2], cache)]
    logits += [own(stage, read[:, stage + 1 : stage + 2], cache) for stage in range(1, own.stages)]
    return {"codes": torch.stack(logits, dim=1).numpy()}


def speaker(network, state) -> dict[str, np.ndarray]:
    mel = torch.from_numpy(state["hidden"]).double().transpose(1, 2)
    return {"vector": network.speaker_encoder(mel).numpy()}


def test_the_inputs_are_a_text_and_the_codecs_codes(published):
    parts = open_published(published, offline=True).parts
    configs = {kind: part.config for kind, part in parts.items()}
    documents = {kind: part.documents for kind, part in parts.items()}
    given = Given(configs, documents, 20, 0.8, 0)
    config = configs["qwen3"]
    assert isinstance(config, Qwen3Config)
    given.made["codes"] = np.arange(config.n_codebooks * 20).reshape(1, config.n_codebooks, 20) % 7
    rung = ladder("qwen3", given)[2]
    state = rung.state(given)
    assert state["text"].shape == (2, 20)
    assert state["text"][0, 0] == config.im_start_id
    assert len(np.unique(state["text"])) > 8
    np.testing.assert_array_equal(state["frames"][0], given.made["codes"][0])
    with pytest.raises(UsageError, match="--rows"):
        ladder("qwen3", Given(configs, documents, 5000, 0.8, 0))


@pytest.mark.parametrize(
    ("mode", "dtype", "how"),
    [
        ("base", "float32", None),
        ("base", "float16", ("affine", 32, 8)),
        ("custom_voice", "bfloat16", None),
        ("voice_design", "bfloat16", ("affine", 32, 4)),
    ],
)
def test_the_command_passes(tmp_path, capsys, mode, dtype, how, verify_here):
    from tests.mlx_port.commands.running import run

    source, made = write_published(tmp_path / "qwen3", mode), tmp_path / "made"
    quantization = None if how is None else Quantization(*how)
    convert(open_published(source, offline=True), made, dtype=dtype, quantization=quantization)
    code, out, err = run(capsys, "verify", source, made, "--rows", 12, "--seconds", 0.8)
    assert code == 0, out + err
    assert "PASS" in out

"""What verify runs of Qwen3-TTS: each tensor in one stage, a text and codes; the command's verdict."""

import numpy as np
import pytest

from converters.convert import convert
from converters.published import open_published
from converters.rules.dequantize import Quantization
from tests.tiny.qwen3 import write_published
from tts_core.codecs import qwen3_codec
from tts_core.errors import UsageError
from tts_core.nn.ladder import InputSources, ladder
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


def test_the_inputs_are_a_text_and_the_codecs_codes(published):
    parts = open_published(published, offline=True).parts
    configs = {kind: part.config for kind, part in parts.items()}
    documents = {kind: part.documents for kind, part in parts.items()}
    given = InputSources(configs, documents, 20, 0.8, 0)
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
        ladder("qwen3", InputSources(configs, documents, 5000, 0.8, 0))


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

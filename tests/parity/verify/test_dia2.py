"""What verify runs of Dia2: each tensor in one stage, a text and the codec's codes; the command's verdict."""

import numpy as np
import pytest

from converters.convert import convert
from converters.published import open_published
from tests.mlx_port.commands.running import run
from tests.tiny.dia2 import dia2_config, other_config, published_dia2
from tts_core.dia2.ladder import tensor_group
from tts_core.dia2.layer_order import depformer_stages, transformer_stages
from tts_core.dia2.shapes import parameter_shapes
from tts_core.errors import UsageError
from tts_core.nn.ladder import InputSources, ladder

pytestmark = pytest.mark.rest


@pytest.mark.parametrize("config", [dia2_config(), other_config()], ids=["gaps", "plain"])
def test_every_tensor_belongs_to_one_stage(config):
    names = list(parameter_shapes(config))
    stages = [*transformer_stages(config), *depformer_stages(config)]
    claimed = [name for stage in stages for name in stage.tensors(names)]
    assert sorted(claimed) == sorted(names)
    assert all(map(tensor_group, names))


@pytest.fixture(scope="module", params=["v_main", "v_text"])
def published(request, tmp_path_factory):
    return published_dia2(tmp_path_factory.mktemp("dia2") / request.param, request.param)


def test_the_inputs_are_a_text_and_the_codecs_codes(published):
    parts = open_published(published).parts
    configs = {kind: one.config for kind, one in parts.items()}
    documents = {kind: one.documents for kind, one in parts.items()}
    given = InputSources(configs, documents, 20, 0.8, 0)
    given.made["codes"] = np.arange(8 * 20).reshape(1, 8, 20) % 7
    rung = ladder("dia2", given)[2]
    tokens, config = rung.state(given)["tokens"], parts["dia2"].config
    assert tokens.shape == (2, 20, 2 + config.n_streams)
    assert tokens[0, 0, 0] == config.text_bos_id
    assert len(np.unique(tokens[0, :, 0])) > 8
    assert (tokens[1, :, :2] == (config.text_zero_id, config.text_pad_id)).all()
    assert (tokens[0, 0, 2:] == config.audio_bos_id).all()
    assert (tokens[0, config.longest_delay :, 2:] < 7).all()
    with pytest.raises(UsageError, match="--rows"):
        ladder("dia2", InputSources(configs, documents, 5000, 0.8, 0))


def test_the_command_passes(published, tmp_path, capsys, verify_here):
    convert(open_published(published), tmp_path / "dia2")
    code, out, err = run(capsys, "verify", published, tmp_path / "dia2", "--rows", 12, "--seconds", 0.8)
    assert code == 0, err
    assert "PASS" in out

"""The layers of Dia2 that verify runs one by one are the networks in sequence; the command's verdict."""

import numpy as np
import pytest

from converters.convert import convert
from converters.published import open_published
from mlx_port.commands.verify.run import trace
from tests.golden.dia2_bench import Dia2Side
from tests.mlx_port.commands.running import run
from tests.sides import ORACLE
from tests.tiny.dia2 import dia2_config, other_config, published_dia2
from torch_ref.layerwise import Layerwise
from tts_core.dia2.ladder import tensor_group
from tts_core.dia2.layer_order import depformer_stages, transformer_stages
from tts_core.dia2.shapes import parameter_shapes
from tts_core.errors import UsageError
from tts_core.nn.ladder import Given, ladder

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


def test_the_layers_in_a_row_are_the_networks(published):
    parts = open_published(published).parts
    part, configs = parts["dia2"], {kind: one.config for kind, one in parts.items()}
    given = Given(configs, {kind: one.documents for kind, one in parts.items()}, 9, 0.8, 0)
    side, seen = Dia2Side("float64", ORACLE.network("dia2", part)), 0
    for rung in ladder("dia2", given):
        state = rung.state(given)
        layers = Layerwise(rung.layers, configs[rung.kind], parts[rung.kind], "float64")
        whole = trace(rung.stages, layers.run, state).whole
        given.made.update({name: whole[name] for name in rung.keeps})
        if rung.kind == "mimi":
            continue
        seen += 1
        if "tokens" in state:
            known = side.teacher_forced(np.ascontiguousarray(state["tokens"].swapaxes(1, 2)))
            made = {"rows": known["hidden"], "actions": known["action_logits"], "logits": known["cb0_logits"]}
        else:
            frames = state["frames"].astype(np.float64)[None]
            text = [state["text"][None, :, stream] for stream in (0, 1)]
            known = side.stages(frames, state["previous"].T[None], text)
            count = len(part.config.weights_schedule)
            made = {"codes": np.stack([known[f"stage.{n}.logits"][0] for n in range(count)], axis=1)}
        for name, array in made.items():
            np.testing.assert_allclose(whole[name], array, rtol=0, atol=1e-11, err_msg=name)
    assert seen == 2


def test_the_inputs_are_a_text_and_the_codecs_codes(published):
    parts = open_published(published).parts
    configs = {kind: one.config for kind, one in parts.items()}
    documents = {kind: one.documents for kind, one in parts.items()}
    given = Given(configs, documents, 20, 0.8, 0)
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
        ladder("dia2", Given(configs, documents, 5000, 0.8, 0))


def test_the_command_passes(published, tmp_path, capsys, verify_here):
    convert(open_published(published), tmp_path / "dia2")
    code, out, err = run(capsys, "verify", published, tmp_path / "dia2", "--rows", 12, "--seconds", 0.8)
    assert code == 0, err
    assert "PASS" in out

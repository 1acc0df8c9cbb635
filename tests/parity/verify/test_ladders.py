"""The layers of MARS5 and MetaVoice that verify runs one by one give, in sequence, the networks."""

from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from converters.published import open_published
from mlx_port.commands.verify.run import trace
from tests.tiny.mbd import mbd_tensors, published_content, write_published
from tests.tiny.metavoice_pipeline import bands_for
from tests.tiny.published_models import AR, FIRST, sources
from torch_ref.layerwise import Layerwise
from torch_ref.loading import open_parts
from tts_core import models
from tts_core.nn.ladder import Given, ladder
from tts_core.nn.layer_order import State, single_passes

pytestmark = [
    pytest.mark.skipif(not (AR.is_file() and FIRST.is_file()), reason=f"{AR} or {FIRST} is missing"),
    pytest.mark.rest,
]


def mars5(network: Any, x: dict[str, torch.Tensor]) -> State:
    rows = network.rows(network.speaker(x["reference"]), x["ids"])
    count = rows.shape[1]
    return {"logits": network(rows, network.positions(count)(0, count), network.new_cache(count))}


def nar(network: Any, x: dict[str, torch.Tensor]) -> State:
    speakers = torch.cat([network.speaker(x["reference"]), network.no_speaker()])
    steps = int(x["timestep"]) + 1
    source = network.read(x["ids"], speakers, frames=x["codes"].shape[1], timesteps=steps)
    logits = network(x["codes"], source, x["timestep"])
    return {f"logits{q}": logits[:, :, q] for q in range(logits.shape[2])}


def first_stage(network: Any, x: dict[str, torch.Tensor]) -> State:
    voice = network.speakers(x["embeddings"].double())
    return {"logits": network(x["tokens"], voice, network.new_cache(x["tokens"].shape[1]))}


def second_stage(network: Any, x: dict[str, torch.Tensor]) -> State:
    logits = network(x["tokens"], x["embeddings"].double())
    return {f"logits{q}": logits[:, q] for q in range(logits.shape[1])}


def encodec(network: Any, x: dict[str, torch.Tensor]) -> State:
    if "hidden" in x:
        return {"codes": network.encode(x["hidden"][:, 0], network.n_codebooks)}
    return {"audio": network.decode(x["codes"])}


def mbd(network: Any, x: dict[str, torch.Tensor]) -> State:
    band = network.band(int(x["band"]))
    heard = {name: x[name].double() for name in ("hidden", "latents", "sound")}
    made = {"estimate": band.unet(heard["hidden"], int(x["step"]), heard["latents"])[:, 0]}
    return made | ({} if band.processor is None else {"processed": band.process(heard["sound"])})


WHOLE: dict[str, Callable[..., State]] = {
    "mars5": mars5,
    "mars5_nar": nar,
    "metavoice": first_stage,
    "metavoice_second_stage": second_stage,
    "metavoice_speaker_encoder": lambda network, x: {"vectors": network(x["slices"].double())},
    "encodec": encodec,
    "vocos": lambda network, x: {"audio": network.decode(x["codes"], int(x["bandwidth"]))},
    "mbd": mbd,
}


@pytest.fixture(scope="module")
def opened(tmp_path_factory) -> Callable[[str], SimpleNamespace]:
    bands = bands_for(open_published(sources("metavoice")).parts["encodec"].config.hidden_size)
    file = tmp_path_factory.mktemp("mbd") / "mbd_comp_8.pt"
    write_published(file, published_content(bands, mbd_tensors(bands)))

    @cache
    def get(model: str) -> SimpleNamespace:
        extras = models.model(model).extras
        files = [*sources(model), *([file] if extras else [])]
        published = open_published(files, include=extras)
        configs = {kind: part.config for kind, part in published.parts.items()}
        documents = {kind: part.documents for kind, part in published.parts.items()}
        given = Given(configs, documents, 11, 0.05, 0)
        networks = open_parts(files, include=extras, dtype="float64", device="cpu")
        return SimpleNamespace(published=published, given=given, networks=networks)

    return get


@pytest.mark.parametrize("model", ["mars5", "metavoice"])
def test_the_layers_in_a_row_are_the_networks(model, opened):
    it, seen = opened(model), set()
    for rung in ladder(model, it.given):
        state = rung.state(it.given)
        part = it.published.parts[rung.kind]
        layers = Layerwise(rung.layers, part.config, part, "float64")
        whole = trace(rung.stages, layers.run, state).whole
        it.given.made.update({name: whole[name] for name in rung.keeps})
        with torch.inference_mode():
            read = {name: torch.from_numpy(np.array(array)) for name, array in state.items()}
            expected = WHOLE[rung.kind](it.networks.network(rung.kind, object), read)
        for name, array in expected.items():
            np.testing.assert_allclose(whole[name], array, rtol=0, atol=1e-10, err_msg=f"{rung.part} {name}")
        seen.add(rung.kind)
    assert seen == it.published.parts.keys()


@pytest.mark.parametrize("rows", [1, 2, 3, 11])
def test_a_ring_reads_every_row_once(rows):
    spans = single_passes(rows)
    assert [row for start, stop in spans for row in range(start, stop)] == list(range(rows))
    assert all(stop - start == 1 for start, stop in spans[1:])

"""The layers that verify runs one by one give, in sequence, the networks."""

from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from converters.published import open_published
from mlx_port.commands.verify.run import trace
from tests.golden.dia2_bench import Dia2Side
from tests.tiny.dia2 import published_dia2
from tests.tiny.mbd import mbd_tensors, published_content, write_published
from tests.tiny.metavoice_pipeline import bands_for
from tests.tiny.published_models import AR, FIRST, sources
from tests.tiny.qwen3 import write_published as write_qwen3
from torch_ref.layerwise import Layerwise
from torch_ref.loading import open_parts
from tts_core import models
from tts_core.nn.ladder import InputSources, ladder
from tts_core.nn.layer_order import State, single_passes
from tts_core.qwen3.config import MODES

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


def dia2(network: Any, x: dict[str, torch.Tensor]) -> State:
    side, given = Dia2Side("float64", network), {name: tensor.numpy() for name, tensor in x.items()}
    if "tokens" in x:
        known = side.teacher_forced(np.ascontiguousarray(given["tokens"].swapaxes(1, 2)))
        return {"rows": known["hidden"], "actions": known["action_logits"], "logits": known["cb0_logits"]}
    text = [given["text"][None, :, stream] for stream in (0, 1)]
    known = side.stages(given["frames"].astype(np.float64)[None], given["previous"].T[None], text)
    count = len(network.config.weights_schedule)
    return {"codes": np.stack([known[f"stage.{n}.logits"][0] for n in range(count)], axis=1)}


def qwen3(network: Any, x: dict[str, torch.Tensor]) -> State:
    talker, predictor = network.talker, network.talker.code_predictor
    if "frames" in x:
        read = talker.embed_frames(x["frames"].long()) + talker.embed_text(x["text"].long())
        hidden = talker(read, 0, talker.new_cache())
        return {"rows": hidden, "logits": talker.logits(hidden)}
    if "stages" in x:
        read, cache = x["stages"].double(), predictor.new_cache()
        logits = [predictor(0, read[:, :2], cache)]
        logits += [
            predictor(stage, read[:, stage + 1 : stage + 2], cache) for stage in range(1, predictor.stages)
        ]
        return {"codes": torch.stack(logits, dim=1).numpy()}
    return {"vector": network.speaker_encoder(x["hidden"].double().transpose(1, 2))}


def codec(network: Any, x: dict[str, torch.Tensor], *books: int) -> State:
    if "hidden" not in x:
        return {"audio": network.decode(x["codes"].numpy())}
    made = np.asarray(network.encode(x["hidden"][:, 0].numpy(), *books))
    assert len(np.unique(made)) > 5
    return {"codes": made}


WHOLE: dict[str, Callable[..., State]] = {
    "dia2": dia2,
    "mimi": lambda network, x: codec(network, x, network.config.n_codebooks),
    "qwen3": qwen3,
    "qwen3_codec": codec,
    "mars5": mars5,
    "mars5_nar": nar,
    "metavoice": first_stage,
    "metavoice_second_stage": second_stage,
    "metavoice_speaker_encoder": lambda network, x: {"vectors": network(x["slices"].double())},
    "encodec": encodec,
    "vocos": lambda network, x: {"audio": network.decode(x["codes"], int(x["bandwidth"]))},
    "mbd": mbd,
}


BOUNDS = {"dia2": 1e-11, "mimi": 1e-12, "qwen3": 1e-11, "qwen3_codec": 1e-12}


@pytest.fixture(scope="module")
def opened(tmp_path_factory) -> Callable[[str], SimpleNamespace]:
    bands = bands_for(open_published(sources("metavoice")).parts["encodec"].config.hidden_size)
    file = tmp_path_factory.mktemp("mbd") / "mbd_comp_8.pt"
    write_published(file, published_content(bands, mbd_tensors(bands)))

    @cache
    def get(name: str) -> SimpleNamespace:
        model, _, form = name.partition(", ")
        extras, place = models.model(model).extras, tmp_path_factory.mktemp(model)
        if model == "dia2":
            files = [published_dia2(place / form, form)]
        elif model == "qwen3":
            files = [write_qwen3(place / form, form)]
        else:
            files = [*sources(model), *([file] if extras else [])]
        published = open_published(files, include=extras)
        configs = {kind: part.config for kind, part in published.parts.items()}
        documents = {kind: part.documents for kind, part in published.parts.items()}
        given = InputSources(configs, documents, *((9, 0.8) if form else (11, 0.05)), 0)
        networks = open_parts(files, include=extras, dtype="float64", device="cpu")
        return SimpleNamespace(published=published, given=given, networks=networks)

    return get


LAST = {
    "mars5": ["vocoder", "mars5", "nar"],
    "metavoice": ["metavoice", "second_stage", "mbd, band 0", "mbd, band 1"],
    "dia2, v_main": ["codec", "codec", "dia2", "dia2"],
    "dia2, v_text": ["codec", "codec", "dia2", "dia2"],
    **{f"qwen3, {mode}": ["codec", "codec", "talker", "predictor"] for mode in MODES},
    "qwen3, base": ["codec", "codec", "talker", "predictor", "speaker"],
}


@pytest.mark.parametrize("case", LAST)
def test_the_layers_in_a_row_are_the_networks(case, opened):
    it, seen = opened(case), []
    for rung in ladder(case.partition(",")[0], it.given):
        state = rung.state(it.given)
        part = it.published.parts[rung.kind]
        layers = Layerwise(rung.layers, part.config, part, "float64")
        whole = trace(rung.stages, layers.run, state).whole
        it.given.made.update({name: whole[name] for name in rung.keeps})
        with torch.inference_mode():
            read = {name: torch.from_numpy(np.array(array)) for name, array in state.items()}
            expected = WHOLE[rung.kind](it.networks.network(rung.kind, object), read)
        for name, array in expected.items():
            bound = BOUNDS.get(rung.kind, 1e-10)
            np.testing.assert_allclose(whole[name], array, rtol=0, atol=bound, err_msg=f"{rung.part} {name}")
        seen.append(rung)
    assert {rung.kind for rung in seen} == it.published.parts.keys()
    assert [rung.part for rung in seen[-len(LAST[case]) :]] == LAST[case]


@pytest.mark.parametrize("rows", [1, 2, 3, 11])
def test_a_ring_reads_every_row_once(rows):
    spans = single_passes(rows)
    assert [row for start, stop in spans for row in range(start, stop)] == list(range(rows))
    assert all(stop - start == 1 for start, stop in spans[1:])

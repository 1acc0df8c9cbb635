"""The layers that verify runs one by one give, in sequence, the networks; each tensor is in one of them."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from mlx_port.commands.verify.run import trace
from tests.golden.dia2_bench import Dia2Side
from tests.parity.verify.origins import inputs
from tests.tiny.published_models import AR, FIRST
from torch_ref.layerwise import Layerwise
from torch_ref.loading import open_parts
from tts_core.nn.ladder import ladder
from tts_core.nn.layer_order import State, passes, single_passes
from tts_core.qwen3.config import MODES

pytestmark = [
    pytest.mark.skipif(not (AR.is_file() and FIRST.is_file()), reason=f"{AR} or {FIRST} is missing"),
    pytest.mark.rest,
]


def dia(network: Any, x: dict[str, torch.Tensor]) -> State:
    read = network.read([x["ids"][0]], network.encode_nothing())
    return {"logits": network(x["tokens"], network.new_cache(), read)}


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


def dac(network: Any, x: dict[str, torch.Tensor]) -> State:
    if "samples" not in x:
        return {"audio": network.decode(x["codes"].numpy())}
    return {"codes": network.encode(x["samples"].numpy())}


WHOLE: dict[str, Callable[..., State]] = {
    "dia": dia,
    "dac": dac,
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

# of float64, see tests/tolerance.py; 1e-10 where values are largest
BOUNDS = {"dia": 1e-11, "dia2": 1e-11, "mimi": 1e-12, "qwen3": 1e-11, "qwen3_codec": 1e-12}
# kinds whose tensors have one stage each
ONCE = ("dia", "dac", "dia2", "qwen3", "qwen3_codec")

LAST = {
    "dia, v_0626_hf": ["codec", "codec", "dia"],
    "dia, v_v01": ["codec", "codec", "dia"],
    "mars5": ["vocoder", "mars5", "nar"],
    "metavoice": ["metavoice", "second_stage", "mbd, band 0", "mbd, band 1"],
    "dia2, v_main": ["codec", "codec", "dia2", "dia2"],
    "dia2, v_text": ["codec", "codec", "dia2", "dia2"],
    **{f"qwen3, {mode}": ["codec", "codec", "talker", "predictor"] for mode in MODES},
    "qwen3, base": ["codec", "codec", "talker", "predictor", "speaker"],
}


@pytest.mark.parametrize("case", LAST)
def test_the_layers_in_a_row_are_the_networks(case, origin):
    files, seen, claimed = origin(case), [], Counter[tuple[str, str]]()
    published = files.open()
    given = inputs(published, 11, files.seconds, 0)
    networks = open_parts(files.files, codec=files.codec, include=files.extras, dtype="float64", device="cpu")
    for rung in ladder(files.model, given):
        state, part = rung.state(given), published.parts[rung.kind]
        whole = trace(rung.stages, Layerwise(rung.layers, part.config, part, "float64").run, state).whole
        given.made.update({name: whole[name] for name in rung.keeps})
        with torch.inference_mode():
            read = {name: torch.from_numpy(np.array(array)) for name, array in state.items()}
            expected = WHOLE[rung.kind](networks.network(rung.kind, object), read)
        for name, array in expected.items():
            bound = BOUNDS.get(rung.kind, 1e-10)
            np.testing.assert_allclose(whole[name], array, rtol=0, atol=bound, err_msg=f"{rung.part} {name}")
        seen.append(rung)
        tensors = [name for stage in rung.stages for name in stage.tensors(part.names())]
        claimed.update((rung.kind, name) for name in tensors)
        assert rung.groups is None or all(map(rung.groups, tensors))
    assert [rung.part for rung in seen[-len(LAST[case]) :]] == LAST[case]
    assert claimed.keys() == {(kind, name) for kind, part in published.parts.items() for name in part.names()}
    twice = {name for (kind, name), times in claimed.items() if times > 1 and kind in ONCE}
    assert all(name.startswith("quantizer.quantizers.") for name in twice)  # DAC's: chosen, and read


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 11, 24])
def test_the_passes_read_every_row_once(rows):
    """Those of a cache, and of a ring, which takes single rows after the first."""
    for spans in (passes(rows), single_passes(rows)):
        assert [row for start, stop in spans for row in range(start, stop)] == list(range(rows))
    assert all(stop - start == 1 for start, stop in single_passes(rows)[1:])

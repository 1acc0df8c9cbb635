"""Networks of full widths under the rules of MPS: our layers break no rule.

Of each kind of layer there is one: more would repeat the same calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

import torch_ref.mars5.reverse as reverse
from tests.tiny.dia2_texts import GivenText
from tests.tiny.inputs import normal
from tests.torch_ref.limits.full_size import codes, network, zeros
from tests.torch_ref.limits.stand_ins import stand_ins
from torch_ref.dia2.decoder import make_slots as dia2_slots
from torch_ref.dia2.dia2 import Dia2
from torch_ref.limits import Backend, enforce
from torch_ref.mars5.residual_transformer import ResidualTransformer
from torch_ref.metavoice.first_stage import FirstStage
from torch_ref.metavoice.second_stage import SecondStage
from torch_ref.qwen3.decoder import make_slots
from torch_ref.qwen3.qwen3 import Qwen3
from tts_core.dia2.inputs import Dia2Choice, Dia2Sampling
from tts_core.dia2.model import DIA2_2B
from tts_core.mars5.config import is_norm
from tts_core.mars5.diffusion import Diffusion, make_cells
from tts_core.mars5.model import MARS5_NAR
from tts_core.metavoice.model import METAVOICE_FIRST_STAGE, METAVOICE_SECOND_STAGE
from tts_core.nn.noise import HostNoise
from tts_core.qwen3.config import BASE
from tts_core.qwen3.layout import Qwen3Choice, Qwen3Inputs, Qwen3Recording, Qwen3Sampling, build
from tts_core.qwen3.model import qwen3

pytestmark = pytest.mark.rest

DIA2 = replace(
    DIA2_2B,
    transformer=replace(DIA2_2B.transformer, num_hidden_layers=1),
    depformer=replace(DIA2_2B.depformer, num_hidden_layers=1),
)
QWEN3 = qwen3("1b7", BASE)
QWEN3 = replace(
    QWEN3,
    talker=replace(QWEN3.talker, num_hidden_layers=1),
    predictor=replace(QWEN3.predictor, num_hidden_layers=1),
)
MARS5 = replace(MARS5_NAR, encoder_layers=1, decoder_layers=2, speaker_layers=1)


def shapes_only(patch: pytest.MonkeyPatch) -> None:
    """Let nothing be read from the device."""
    patch.setattr("torch_ref.batch.begin_read", lambda drawn: drawn)
    patch.setattr("torch_ref.batch.finish_read", lambda x: np.zeros(x.shape, np.int32))


def dia2(patch: pytest.MonkeyPatch) -> None:
    """A long prefix, then a step with all codes."""
    streams = DIA2.n_streams
    before = np.zeros((700, 2 + streams), np.int32)
    usual = Dia2Sampling(Dia2Choice(2.0, 50, 0.6, 50), Dia2Choice(2.0, 50, 0.8, 50))
    shapes_only(patch)
    batch = dia2_slots(network(Dia2, DIA2), texts=1, capacity=702)
    batch.join({0: GivenText([*before[:1]], usual, HostNoise(1), before, 699, answers=(2, 3))})
    assert batch.read(batch.launch(1)).shape == (1, 1, streams)


def joining(seed: int, words: int, sampling: Qwen3Sampling, frames: int = 0) -> Qwen3Inputs:
    """A text of Qwen3-TTS that continues a recording, if it has frames."""
    random = np.random.default_rng(seed)
    recording, spoken = None, None
    if frames:
        recording = Qwen3Recording(tuple(random.integers(0, 200, 9).tolist()), frames)
        spoken = np.zeros((QWEN3.n_codebooks, frames), np.int32)
    ids = random.integers(0, 200, words).tolist()
    layout = build(QWEN3, ids, language=None, streamed=bool(seed % 2), recording=recording)
    return Qwen3Inputs(layout, sampling, HostNoise(seed), normal(seed, QWEN3.talker.hidden_size), spoken)


def qwen3_tts(patch: pytest.MonkeyPatch) -> None:
    """The talker after a long recording, and the predictor's stages: frames of two texts, one of them fed.

    Then ten seconds for the speaker encoder.
    """
    shapes_only(patch)
    made = network(Qwen3, QWEN3)
    slots = make_slots(made, texts=2, capacity=900)
    nucleus = Qwen3Sampling(Qwen3Choice(top_k=0, top_p=0.9), Qwen3Choice(temperature=1.3), 1.0)
    greedy = Qwen3Sampling(Qwen3Choice(is_greedy=True), Qwen3Choice(is_greedy=True), 1.2)
    slots.join({0: joining(1, 60, nucleus, 700)})
    for _ in range(2):
        assert slots.read(slots.launch(1)).shape == (1, 2, QWEN3.n_codebooks)
    slots.join({1: replace(joining(2, 20, greedy), more=True)})
    slots.feed(1, [5, 6], more=False)
    for _ in range(3):
        slots.read(slots.launch(1))
    assert made.speaker_encoder(zeros(1, 938, 128)).shape == (1, QWEN3.talker.hidden_size)


def metavoice(patch: pytest.MonkeyPatch) -> None:
    """A text, rows after it, a step after the longest sequence, the whole window."""
    first = network(FirstStage, replace(METAVOICE_FIRST_STAGE, num_hidden_layers=1))
    second = network(SecondStage, replace(METAVOICE_SECOND_STAGE, num_hidden_layers=1))
    heard, cache = first.speakers(zeros(2, 256)), first.new_cache(2048)
    for rows in (200, 1847, 1):
        assert first.next_logits(codes(2, rows), heard, cache).shape == (2, 2562)
    assert second(codes(1, 2, 1024), zeros(1, 256)).shape == (1, 6, 1024, 1025)


def mars5(patch: pytest.MonkeyPatch) -> None:
    """One step of a deep clone's diffusion, with both draws: 12 s of reference and 20 s of speech."""
    reference, frames = np.zeros((8, 900), np.int32), 1500
    begin = make_cells(np.zeros(frames, np.int32), np.zeros((8, frames), np.int32), reference, n_classes=1025)
    made = network(ResidualTransformer, MARS5).to(torch.float16)
    for name, parameter in made.named_parameters():
        parameter.data = parameter.data.float() if is_norm(name) else parameter.data
    for settings, classes in ((Diffusion(draws="per cell"), ()), (Diffusion(draws="per class"), (1025,))):
        source = reverse.ReverseDiffusion(made).read(np.zeros(150, np.int32), reference, begin, settings)
        step = reverse.DenoisingStep(made, source, begin, settings)
        state, place = zeros(2400, 8, dtype=torch.long), zeros(1, dtype=torch.long)
        assert step(state, place, zeros(2, 2400, 8, *classes)).shape == (2400, 8)
        assert (source.text.shape, step.first_frame, step.first_book) == ((2, 151, 1024), 900, 1)


RUNS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "dia2": dia2,
    "qwen3": qwen3_tts,
    "metavoice": metavoice,
    "mars5": mars5,
}


@pytest.mark.parametrize("backend", stand_ins("without LSTM"), ids=str)
@pytest.mark.parametrize("name", RUNS)
@torch.inference_mode()
def test_full_size(name: str, backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.device("meta"), enforce(backend) as watch:
        RUNS[name](monkeypatch)
    assert watch.calls > 0

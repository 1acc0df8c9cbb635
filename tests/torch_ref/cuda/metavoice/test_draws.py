"""The kernels at both ends of the first stage's step against its embeddings and sampling rules."""

from typing import cast

import numpy as np
import pytest
import torch

from tests.tiny.metavoice import first_stage_config
from tests.torch_ref.cuda.marks import DEVICE, kernel_marks
from torch_ref.metavoice.draws import draw_rows, embed_rows
from torch_ref.metavoice.first_stage import FirstStage
from torch_ref.metavoice.sampling import guide, probabilities, race
from torch_ref.metavoice.step import stacked
from tts_core.metavoice.config import END_OF_AUDIO
from tts_core.metavoice.sampling import FirstStageSampling

pytestmark = kernel_marks()

VOCABULARY = 70
SETTINGS = {
    "defaults": FirstStageSampling(top_p=0.6),
    "one row": FirstStageSampling(cfg_scale=1.0),
    "fast, both cuts": FirstStageSampling(top_k=9, top_p=0.5, temperature=1.4),
    "fast, the best alone": FirstStageSampling(top_p=0.0),
    "fast, no cut": FirstStageSampling(top_p=None),
    "slow, three rows": FirstStageSampling(2.0, 1.5, rule="slow", top_p=0.7),
    "slow, top k": FirstStageSampling(2.0, 1.5, rule="slow", top_p=None, top_k=4),
    "slow, the best alone": FirstStageSampling(rule="slow", top_p=0.0),
    "greedy": FirstStageSampling(top_p=None, top_k=1),
}


@torch.inference_mode()
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("texts", [1, 2])
@pytest.mark.parametrize("ties", [False, True], ids=["different", "ties"])
def test_ids_are_those_of_the_rules(name: str, texts: int, *, ties: bool) -> None:
    """Ties: few different logits, so that every cut falls between equal ones."""
    sampling, random = SETTINGS[name], np.random.default_rng(2)
    position, out = torch.tensor([5], device=DEVICE), torch.zeros(texts, dtype=torch.long, device=DEVICE)
    for place in range(6):
        made = random.normal(0, 2, (sampling.rows, texts, VOCABULARY)).astype(np.float32)
        logits = torch.from_numpy(np.round(made) if ties else made).to(DEVICE)
        times = random.exponential(1, (texts, VOCABULARY)).astype(np.float32)
        waiting = None if sampling.greedy else torch.from_numpy(times).to(DEVICE)
        draw_rows(logits.flatten(0, 1), waiting, position, out, sampling)
        guided = guide(list(logits), sampling.cfg_scale, sampling.text_cfg_scale)
        assert torch.equal(out, race(probabilities(guided, sampling), waiting)), place
    assert position.item() == 11


@torch.inference_mode()
@pytest.mark.parametrize("row", [0, 1, 2])
def test_logits_that_are_no_numbers_mark_their_text(row: int) -> None:
    logits = torch.zeros(3, 2, VOCABULARY, device=DEVICE)
    logits[row, 1, 8] = torch.inf
    out = torch.zeros(2, dtype=torch.long, device=DEVICE)
    draw_rows(logits.flatten(0, 1), None, out[:1].clone(), out, SETTINGS["slow, three rows"])
    assert out.tolist() == [0, -1]


@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("rows", [1, 3])
def test_rows_are_the_networks(dtype: torch.dtype, rows: int) -> None:
    """Ids of audio and of text, which the third rows of guidance replace."""
    torch.manual_seed(1)
    network = FirstStage(first_stage_config()).to(DEVICE, dtype)
    sampling = FirstStageSampling(1.0) if rows == 1 else SETTINGS["slow, three rows"]
    tokens = torch.tensor([[END_OF_AUDIO + 9], [17]], device=DEVICE)
    speakers = torch.randn(2 * rows, 1, network.config.hidden_size, device=DEVICE).to(dtype)
    position = torch.tensor([6], device=DEVICE)
    nothing = network.config.vocab_size - 1
    expected = network.transformer.embed(stacked(tokens, sampling, nothing), speakers, position)[:, 0]
    x = torch.empty_like(expected)
    table = cast(torch.nn.Embedding, network.transformer.wtes[0]).weight
    places = network.transformer.wpe.weight
    embed_rows(tokens, table, places, speakers, position, x, nothing)
    torch.testing.assert_close(x, expected, rtol=0, atol=0)

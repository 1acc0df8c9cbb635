"""The kernels at both ends of the first stage's step against its embeddings and sampling rules."""

from typing import cast

import numpy as np
import pytest
import torch

from tests.tiny.networks import first_stage_config
from tests.torch_ref.cuda.marks import DEVICE, kernel_marks
from torch_ref.cuda.metavoice.draws import MetaVoiceDraws, draw_ids, embed_rows
from torch_ref.metavoice.first_stage import FirstStage
from torch_ref.sampling import draw_rows
from tts_core.metavoice.config import END_OF_AUDIO
from tts_core.metavoice.inputs import SAMPLER, FirstStageSampling

pytestmark = kernel_marks()

VOCABULARY = 70
END_OF_TEXT = END_OF_AUDIO + 20
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


LAST = 9  # position


def rows_of(samplings: list[FirstStageSampling]) -> MetaVoiceDraws:
    """Rows in the order of the texts, at positions from 5 on."""
    own = np.full((len(samplings), 3), -1, np.int32)
    count = 0
    for text, sampling in enumerate(samplings):
        own[text, : sampling.rows] = np.arange(count, count + sampling.rows)
        count += sampling.rows
    return MetaVoiceDraws(
        torch.zeros(count, 1, dtype=torch.long, device=DEVICE),
        torch.arange(5, 5 + count, device=DEVICE),
        torch.from_numpy(own).to(DEVICE),
        torch.from_numpy(SAMPLER.table(sampling.numbers for sampling in samplings)).to(DEVICE),
        torch.zeros(len(samplings), dtype=torch.int32, device=DEVICE),
    )


def drawn(logits: torch.Tensor, noise: torch.Tensor, rows: MetaVoiceDraws) -> list[int]:
    out = torch.full((len(noise),), 7, device=DEVICE)
    draw_ids(logits, noise, rows, out, last=LAST, end_of_text=END_OF_TEXT)
    return out.tolist()


@torch.inference_mode()
@pytest.mark.parametrize("ties", [False, True], ids=["different", "ties"])
def test_ids_are_those_of_the_rules(*, ties: bool) -> None:
    """Texts of every sampling at once. Ties: few different logits, so that cuts fall between equal ones."""
    samplings, random = [*SETTINGS.values()], np.random.default_rng(2)
    rows = rows_of(samplings)
    for place in range(6):
        made = random.normal(0, 2, (len(rows.tokens), VOCABULARY)).astype(np.float32)
        logits = torch.from_numpy(np.round(made) if ties else made).to(DEVICE)
        shape = len(samplings), VOCABULARY
        uniform = torch.from_numpy(random.uniform(1e-6, 1 - 1e-6, shape).astype(np.float32)).to(DEVICE)
        expected = []
        for text, (settings, own) in enumerate(zip(rows.settings, rows.own.tolist(), strict=True)):
            parts = logits[[row for row in own if row >= 0]][:, None]
            table = SAMPLER.named(settings[None], 2)
            expected.append(draw_rows([*parts], table, uniform[text : text + 1], SAMPLER).item())
        assert drawn(logits, torch.log(-torch.log(uniform)), rows) == expected, place
        for own, drawn_id in zip(rows.own.tolist(), expected, strict=True):
            assert {rows.tokens[row].item() for row in own if row >= 0} == {drawn_id}
    assert rows.positions.tolist() == [LAST] * len(rows.tokens)


@torch.inference_mode()
@pytest.mark.parametrize("row", [0, 1, 2])
def test_logits_that_are_no_numbers_mark_their_text(row: int) -> None:
    rows = rows_of([SETTINGS["slow, three rows"]] * 2)
    logits = torch.zeros(6, VOCABULARY, device=DEVICE)
    logits[3 + row, 8] = torch.inf
    assert drawn(logits, torch.zeros(2, VOCABULARY, device=DEVICE), rows) == [0, -1]
    assert rows.tokens.flatten().tolist() == [0] * 6


@torch.inference_mode()
def test_text_is_replaced_in_rows_without_it_and_free_slots_draw_nothing() -> None:
    rows = rows_of([SETTINGS["slow, three rows"]] * 2)
    rows.own[0] = rows.step[0] = -1
    word, vocabulary = END_OF_AUDIO + 9, END_OF_TEXT + 1
    logits = torch.zeros(6, vocabulary, device=DEVICE)
    logits[3:, word] = 100
    assert drawn(logits, torch.zeros(2, vocabulary, device=DEVICE), rows) == [7, word]
    assert rows.tokens.flatten().tolist() == [0, 0, 0, word, word, END_OF_TEXT]
    assert rows.positions.tolist() == [5, 6, 7, 9, 9, 9]


@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_rows_are_the_networks(dtype: torch.dtype) -> None:
    """Ids of audio and of text at different positions."""
    torch.manual_seed(1)
    network = FirstStage(first_stage_config()).to(DEVICE, dtype)
    tokens = torch.tensor([[END_OF_AUDIO + 9], [17]], device=DEVICE)
    speakers = torch.randn(2, 1, network.config.hidden_size, device=DEVICE).to(dtype)
    positions = torch.tensor([6, 3], device=DEVICE)
    expected = network.transformer.embed(tokens, speakers, positions[:, None])[:, 0]
    x = torch.empty_like(expected)
    table = cast(torch.nn.Embedding, network.transformer.wtes[0]).weight
    rows = MetaVoiceDraws(tokens, positions, *(torch.empty(0) for _ in range(3)))
    embed_rows(rows, table, network.transformer.wpe.weight, speakers, x)
    torch.testing.assert_close(x, expected, rtol=0, atol=0)

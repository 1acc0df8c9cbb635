"""The captured draws against the rules on tensors, and the sum of embeddings against the network's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.torch_ref.cuda.dia2.kernel_dia2 import config, network
from tests.torch_ref.cuda.marks import DEVICE, kernel_marks
from torch_ref.cuda.dia2.draws import Dia2Given, Follows, draw_action, draw_code, embed
from torch_ref.cuda.dia2.step import Dia2Buffers, FusedDia2
from torch_ref.cuda.triton import INTERPRETED
from torch_ref.sampling import draw_rows
from tts_core.dia2.inputs import FIRST_STREAM, SAMPLER, Dia2Choice, allowed_ids

pytestmark = kernel_marks()

TEXTS, V = 24, 35
CHOICES = {
    "defaults": Dia2Choice(2.0, 10, 0.8, 8),
    "greedy": Dia2Choice(2.0, 10, 0.0, 8),
    "no guidance": Dia2Choice(1.0, 10, 0.7, 5),
    "no filter": Dia2Choice(3.0, 0, 1.3, 0),
    "from the unconditional end": Dia2Choice(0.3, 4, 0.8, 50),
    "few of few": Dia2Choice(6.0, 3, 0.8, 2),
    "cold": Dia2Choice(2.0, 50, 1e-9, 3),
}


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(1e-6, 1 - 1e-6, shape).astype(np.float32)


def hard_logits(width: int, dtype: torch.dtype) -> Tensor:
    """Random ones, some with many ties, some whose guidance favors ids that are no codes."""
    logits = np.random.default_rng(5).normal(0, 2, (2 * TEXTS, width)).astype(np.float32)
    logits[: TEXTS // 2] = logits[: TEXTS // 2].round()
    logits[TEXTS // 3 : TEXTS, -2:] += 30
    return in_turn(torch.from_numpy(logits).to(dtype))


def in_turn(rows: Tensor) -> Tensor:
    """Let an unconditional row follow each conditional one. (2 B, ...), all conditional ones first → same."""
    return rows.unflatten(0, (2, -1)).transpose(0, 1).flatten(0, 1)


def state_of(choice: Dia2Choice, uniform: np.ndarray) -> Dia2Buffers:
    state = Dia2Buffers.empty(network(), TEXTS, 8, guided=True)
    state.rows.settings[:] = torch.from_numpy(SAMPLER.table([choice.numbers] * 2)).to(DEVICE)
    state.rows.noise.copy_(torch.log(-torch.log(torch.from_numpy(uniform).to(DEVICE))))
    return state


@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("stream", [-1, 0, 3])
@pytest.mark.parametrize("name", CHOICES)
def test_draws(name: str, stream: int, dtype: torch.dtype) -> None:
    """Ids equal those of the rules on a CPU, for actions (stream -1), first codes and others."""
    whole, choice = config(), CHOICES[name]
    width = {-1: whole.action_vocab_size, 0: V}.get(stream, whole.codebook_size)
    logits, uniform = hard_logits(width, dtype), numbers(2, TEXTS, 1 + whole.n_streams, V)
    codes = (
        torch.from_numpy(allowed_ids(V, (whole.audio_pad_id, whole.audio_bos_id))) if stream == 0 else None
    )
    noise = torch.from_numpy(uniform[:, 1 + stream, :width])
    table = SAMPLER.named(torch.from_numpy(SAMPLER.table([choice.numbers] * TEXTS)), 2)
    sampler = SAMPLER if codes is None else FIRST_STREAM
    known = draw_rows([*logits.float().unflatten(0, (-1, 2)).unbind(1)], table, noise, sampler, allowed=codes)
    state = state_of(choice, uniform)
    if stream < 0:
        draw_action(logits.to(DEVICE), state.rows, state.own)
        own = state.rows.actions
    else:
        allowed = None if codes is None else codes.to(DEVICE, torch.int8)
        draw_code(logits.to(DEVICE), state.rows, stream, state.own, allowed=allowed)
        own = state.rows.codes[:, stream]
    np.testing.assert_array_equal(own.cpu().numpy(), known.numpy())


@torch.inference_mode()
@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("row", [4, 5])
def test_logits_that_are_not_finite_are_marked(number: float, row: int) -> None:
    """Other texts are drawn; the next input takes the first code."""
    whole, logits = config(), hard_logits(V, torch.float32)
    logits[row, 3] = number
    state = state_of(CHOICES["defaults"], numbers(2, TEXTS, 1 + whole.n_streams, V))
    projected, table = torch.zeros(2 * TEXTS, 12, device=DEVICE), torch.ones(V, 12, device=DEVICE)
    table[0] = 7
    allowed = torch.ones(V, dtype=torch.int8, device=DEVICE)
    draw_code(logits.to(DEVICE), state.rows, 0, state.own, Follows(projected, table, state.y), allowed)
    marked = state.rows.codes[:, 0] == -1
    assert marked.nonzero().flatten().tolist() == [2]
    assert (state.y[4:6] == 7).all()


@torch.inference_mode()
def test_the_next_input_is_written_and_texts_that_wait_keep_their_ids() -> None:
    whole = config()
    state = state_of(CHOICES["greedy"], numbers(2, TEXTS, 1 + whole.n_streams, V))
    Dia2Given.of(state.rows.inputs).step[4], state.rows.codes[4, 1] = -1, 9
    projected = torch.from_numpy(numbers(3, 2 * TEXTS, 40)).to(DEVICE)[:, 5:17]
    table = torch.from_numpy(numbers(4, V, 12)).to(DEVICE)
    logits = hard_logits(whole.codebook_size, torch.float32).to(DEVICE)
    draw_code(logits, state.rows, 1, state.own, Follows(projected, table, state.y))
    assert state.rows.codes[4, 1] == 9
    drawn = state.rows.codes[:, 1].long()
    others = torch.arange(TEXTS, device=DEVICE) != 4
    for copy in range(2):
        own, part = state.y[copy::2], projected[copy::2]
        torch.testing.assert_close(own[others], (part + table[drawn])[others], rtol=0, atol=0)


@torch.inference_mode()
@pytest.mark.parametrize(
    "dtype",
    [
        "float32",
        pytest.param(
            "bfloat16",
            marks=pytest.mark.skipif(INTERPRETED, reason="the interpreter rounds towards zero"),
        ),
    ],
)
def test_embeddings_are_added_in_the_networks_order(dtype: str) -> None:
    """Equal to the bit, after the text's part; codes come from the host or from the last draw."""
    built = network(dtype=dtype)
    whole, step = built.config, FusedDia2(built)
    state = Dia2Buffers.empty(built, 3, 8, guided=True)
    random = np.random.default_rng(6)
    tokens = random.integers(0, 33, (3, 2 + whole.n_streams))
    array = np.zeros(Dia2Given.shape(whole.n_streams, 3), np.int64)
    given = Dia2Given.of(array)
    given.text[:], given.second_text[:], given.codes[:] = *tokens[:, :2].T, tokens[:, 2:].T
    given.slot[:], given.position[:], given.step[:] = [5, 1, 7], [4, 2, 6], [0, 0, -1]
    given.codes[1:, 1] = -1
    state.rows.inputs.copy_(torch.from_numpy(array))
    state.rows.codes.copy_(torch.from_numpy(tokens[:, 2:]))
    state.rows.codes[0] = 1
    rows = torch.from_numpy(np.concatenate([tokens, tokens])).to(DEVICE)
    rows[3:, 0], rows[3:, 1] = whole.text_zero_id, whole.text_pad_id
    text = built.transformer.text_embed(rows[:3, 0], rows[:3, 1])
    embed(state.rows, text, step.empty, step.table, state.x, state.slots, state.positions)
    known = torch.cat((text, step.empty.expand(3, -1)))
    for stream, embedding in enumerate(built.transformer.audio_embeds):
        known = (known.float() + embedding(rows[:, 2 + stream]).float()).to(text.dtype)
    torch.testing.assert_close(state.x, in_turn(known), rtol=0, atol=0)
    assert state.slots.tolist() == [5, 5, 1, 1, 7, 7]
    assert state.positions.tolist() == [4, 4, 2, 2, 6, 6]

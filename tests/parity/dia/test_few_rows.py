"""Dia's decoder for one row of a few texts on a CPU: the plain decoder's numbers, up to rounding."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.sides import ORACLE, YARDSTICK, Side
from tests.tiny.dia import compose, dac_config, dac_weights, dia_config, dia_weights
from tests.tiny.weights import Weights
from tests.tolerance import assert_within
from torch_ref import DiaPipeline
from torch_ref.cuda.fixed_cache import FixedCache
from torch_ref.dia import few_rows
from torch_ref.dia import step as steps
from torch_ref.dia.dia import Dia
from torch_ref.dia.few_rows import FewRows
from torch_ref.dia.step import Step
from torch_ref.layers import half_weights
from tts_core.dia.config import DiaConfig

TEXTS = [[49, 32, 50], [51] * 9, [52, 53, 54, 55]]


def network(side: Side, *, cross_rope: bool, half: bool = False) -> Dia:
    """half: weights that float16 holds."""
    weights = dia_weights(dia_config(cross_rope=cross_rope), seed=4)
    return compose(side, halved(weights) if half else weights, dac_weights(dac_config())).engine.network


def halved(weights: Weights[DiaConfig]) -> Weights[DiaConfig]:
    """Round the weights to float16, in which a small network keeps a packed copy of them."""
    for name, tensor in weights.tensors.items():
        weights.tensors[name] = tensor.astype(np.float16).astype(np.float32)
    return weights


def logits(
    side: Side, texts: list[list[int]], *, cross_rope: bool, half: bool, guided: bool, few: bool
) -> np.ndarray:
    """Logits of 20 rows after a first one of two, (20, R, C, V)."""
    plain = network(side, cross_rope=cross_rope, half=half)
    decoder, random = FewRows(plain), np.random.default_rng(5)
    rows, channels = len(texts) * (2 if guided else 1), plain.config.decoder_config.num_channels
    found = []
    with torch.inference_mode():
        source = plain.read([torch.tensor(ids) for ids in texts], plain.encode_nothing() if guided else None)
        cache = plain.new_cache()
        plain.next_logits(torch.from_numpy(random.integers(0, 60, (rows, 2, channels))), cache, source)
        for _ in range(20):
            tokens = torch.from_numpy(random.integers(0, 60, (rows, 1, channels)))
            if few:
                assert decoder.fits(tokens, cache)
            found.append((decoder if few else plain).next_logits(tokens, cache, source).numpy())
    return np.stack(found)


@pytest.mark.parametrize("cross_rope", [False, True], ids=["0626", "v0.1"])
@pytest.mark.parametrize("guided", [False, True], ids=["free", "guided"])
@pytest.mark.parametrize("texts", [TEXTS[:1], TEXTS], ids=["one", "unequal"])
@pytest.mark.parametrize("half", [False, True], ids=["float32", "half"])
def test_logits_are_those_of_the_plain_decoder(
    half: bool, texts: list[list[int]], guided: bool, cross_rope: bool
) -> None:
    if half and not half_weights.supported():
        pytest.skip("needs torch with FBGEMM and a CPU that it supports")
    how = {"cross_rope": cross_rope, "half": half, "guided": guided}
    truth = logits(ORACLE, texts, **how, few=False).astype(np.float64)
    known = logits(YARDSTICK, texts, **how, few=False)
    assert_within(logits(YARDSTICK, texts, **how, few=True), known, truth, "few rows")


def test_other_runs_take_the_plain_decoder() -> None:
    """Many rows, several at a time, captured caches, and other dtypes."""
    plain = network(YARDSTICK, cross_rope=False)
    channels, cache = plain.config.decoder_config.num_channels, plain.new_cache()
    decoder, one = FewRows(plain), torch.zeros(1, 1, channels)
    assert decoder.fits(one, cache)
    assert decoder.fits(one.expand(few_rows.MOST_ROWS, -1, -1), cache)
    assert not decoder.fits(one.expand(few_rows.MOST_ROWS + 1, -1, -1), cache)
    assert not decoder.fits(one.expand(-1, 2, -1), cache)
    nothing = torch.zeros(1)
    assert not decoder.fits(one, [FixedCache(nothing, nothing, nothing, nothing)])
    assert few_rows.few_rows(plain) is not None
    assert few_rows.few_rows(network(ORACLE, cross_rope=False)) is None


def codes(pipeline: DiaPipeline) -> np.ndarray:
    [found] = pipeline.generate_codes(["[S1] One."], max_frames=30, seed=1)
    return found


@torch.inference_mode(False)  # torch counts no changes of tensors that are made in inference mode
def test_changed_weights_are_packed_again() -> None:
    """Replaced, and in place, as training changes them; unchanged ones are not."""
    weights, changed = (halved(dia_weights(dia_config(), seed=seed)) for seed in (4, 5))
    same = {name: tensor for name, tensor in weights.tensors.items() if ".encoder." in name}
    changed.tensors.update(same)  # the engine encodes the empty text only once
    pipeline, other = (compose(YARDSTICK, each, dac_weights(dac_config())) for each in (weights, changed))
    before, after = codes(pipeline), codes(other)
    dia = pipeline.engine.network
    packed = few_rows.few_rows(dia)
    assert few_rows.few_rows(dia) is packed
    assert not np.array_equal(before, after)
    dia.load_state_dict(other.engine.network.state_dict(), assign=True)
    np.testing.assert_array_equal(codes(pipeline), after)
    dia.load_state_dict(network(YARDSTICK, cross_rope=False, half=True).state_dict())
    np.testing.assert_array_equal(codes(pipeline), before)


@pytest.mark.parametrize(
    ("small", "rows", "threads"), [(True, 1, 1), (False, 1, 3), (True, few_rows.MOST_ROWS + 1, 3)]
)
def test_few_rows_of_a_small_network_run_in_one_thread(
    monkeypatch: pytest.MonkeyPatch, small: bool, rows: int, threads: int
) -> None:
    """Their draws too; and torch's own number of threads comes back, also after an error."""
    plain = network(YARDSTICK, cross_rope=False)
    monkeypatch.setattr(few_rows, "SMALL", 2**40 if small else 0)
    before, seen = torch.get_num_threads(), []
    source, sampling = plain.read([torch.tensor([49])] * rows), plain.config.sampling
    step = Step(plain, source, sampling, guided=False)

    def candidates(*given: object) -> None:
        seen.append(torch.get_num_threads())
        raise ArithmeticError

    monkeypatch.setattr(steps, "candidates_0626", candidates)
    torch.set_num_threads(3)
    try:
        with pytest.raises(ArithmeticError), torch.inference_mode():
            step(torch.zeros(rows, 1, 4, dtype=torch.int64), None)
        assert seen == [threads]
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)

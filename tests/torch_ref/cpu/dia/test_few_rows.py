"""Dia's decoder for one row of a few texts on a CPU: the plain decoder's numbers, up to rounding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.sides import ORACLE, YARDSTICK, Side
from tests.tiny.dia import compose
from tests.tiny.networks import Weights, dia_config, tiny
from tests.tolerance import assert_within
from torch_ref import DiaPipeline
from torch_ref.cpu import half_weights
from torch_ref.cpu.dia import few_rows
from torch_ref.cpu.dia.decoder import FewRowsDecoder
from torch_ref.cpu.dia.few_rows import DiaFewRows, Pair, SourceRuns, contiguous
from torch_ref.dia import decoder as plain
from torch_ref.dia.dia import Dia
from tts_core.dia.config import DiaConfig
from tts_core.dia.grid import DiaInputs
from tts_core.nn.row_calls import alike
from tts_core.prompt import Prompt
from tts_core.speaking.decoder import TextRead

pytestmark = pytest.mark.rest

TEXTS = [[49, 32, 50], [51] * 9, [52, 53, 54, 55]]


def network(side: Side, *, cross_rope: bool, half: bool = False) -> Dia:
    """half: weights that float16 holds."""
    weights = tiny(dia_config(cross_rope=cross_rope), seed=4)
    return compose(side, halved(weights) if half else weights, tiny("dac")).engine.network


def halved(weights: Weights[DiaConfig]) -> Weights[DiaConfig]:
    """Round the weights to float16, in which a small network keeps a packed copy of them."""
    for name, tensor in weights.tensors.items():
        weights.tensors[name] = tensor.astype(np.float16).astype(np.float32)
    return weights


def logits(
    side: Side, texts: list[list[int]], *, cross_rope: bool, half: bool, guided: bool, few: bool
) -> np.ndarray:
    """Logits of 20 rows after a first one of two, (20, R, C·V)."""
    plain = network(side, cross_rope=cross_rope, half=half)
    random, channels = np.random.default_rng(5), plain.config.decoder_config.num_channels
    rows = len(texts) * (2 if guided else 1)
    found = []
    with torch.inference_mode():
        source = plain.read([torch.tensor(ids) for ids in texts], plain.encode_empty() if guided else None)
        cache = plain.new_cache()
        plain.next_logits(torch.from_numpy(random.integers(0, 60, (rows, 2, channels))), cache, source)
        own = [cast(Pair, layer.buffers) for layer in cache]
        pairs, lengths = list(zip(source.keys, source.values, strict=True)), [len(ids) for ids in texts]
        for place in range(2, 22):
            tokens = torch.from_numpy(random.integers(0, 60, (rows, 1, channels)))
            if few:
                runs = alike(lengths)
                heard = SourceRuns(runs, [contiguous(*pair, runs) for pair in pairs])
                where = [place] * len(texts), heard, source.unconditional
                found.append(DiaFewRows(plain).next_logits(tokens[:, 0], own, *where).numpy())
            else:
                found.append(plain.next_logits(tokens, cache, source).flatten(1).numpy())
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


@torch.inference_mode()
@pytest.mark.parametrize("half", [False, True], ids=["float32", "half"])
@pytest.mark.parametrize("texts", range(1, 34))
def test_logits_of_a_text_do_not_depend_on_the_others(texts: int, half: bool) -> None:
    """Its place, its neighbors' lengths and positions."""
    plain, random = network(YARDSTICK, cross_rope=True, half=half), np.random.default_rng(texts)
    form, nothing = DiaFewRows(plain), plain.encode_empty()
    constants = plain.model.decoder.constants(nothing)
    heads, width = form.kv_heads, form.head_dim
    lengths, places = (random.integers(1, 30, texts).tolist() for _ in range(2))
    sources = [plain.read([torch.from_numpy(random.integers(1, 200, length))]) for length in lengths]
    layers = range(len(form.layers))
    own = torch.from_numpy(random.normal(size=(len(layers), 2, 2, texts, heads, 32, width))).float()
    tokens = torch.from_numpy(random.integers(0, 60, (texts, plain.config.decoder_config.num_channels)))

    def run(chosen: list[int]) -> torch.Tensor:
        most = max(lengths[one] for one in chosen)
        source = []
        for index in layers:
            parts = [(sources[one].keys[index], sources[one].values[index]) for one in chosen]
            padded = [
                [F.pad(part, (0, 0, 0, most - part.shape[2]), value=3.0) for part in pair] for pair in parts
            ]
            source.append(tuple(torch.cat(which) for which in zip(*padded, strict=True)))
        copied = own[:, :, :, chosen].flatten(2, 3)  # (layers, 2, R, K, rows, E)
        held: list[Pair] = [(copied[index, 0], copied[index, 1]) for index in layers]
        runs = alike([lengths[one] for one in chosen])
        heard = SourceRuns(runs, [contiguous(keys, values, runs) for keys, values in source])
        at = [places[one] for one in chosen]
        found = form.next_logits(tokens[chosen].repeat(2, 1), held, at, heard, constants)
        return found.unflatten(0, (2, -1))

    shared = run(list(range(texts)))
    for one in {0, texts // 2, texts - 1}:
        assert torch.equal(shared[:, one], run([one])[:, 0])


def test_other_networks_take_the_plain_decoder() -> None:
    assert few_rows.few_rows(network(YARDSTICK, cross_rope=False)) is not None
    assert few_rows.few_rows(network(ORACLE, cross_rope=False)) is None


def codes(pipeline: DiaPipeline) -> np.ndarray:
    [found] = pipeline.generate_codes(["[S1] One."], max_frames=30, seed=1)
    return found


@torch.inference_mode(False)  # torch counts no changes of tensors that are made in inference mode
def test_changed_weights_are_packed_again() -> None:
    """Replaced, and in place, as training changes them; unchanged ones are not."""
    weights, changed = (halved(tiny("dia", seed=seed)) for seed in (4, 5))
    same = {name: tensor for name, tensor in weights.tensors.items() if ".encoder." in name}
    changed.tensors.update(same)  # the engine encodes the empty text only once
    pipeline, other = (compose(YARDSTICK, each, tiny("dac")) for each in (weights, changed))
    before, after = codes(pipeline), codes(other)
    dia = pipeline.engine.network
    packed = few_rows.few_rows(dia)
    assert few_rows.few_rows(dia) is packed
    assert not np.array_equal(before, after)
    dia.load_state_dict(other.engine.network.state_dict(), assign=True)
    np.testing.assert_array_equal(codes(pipeline), after)
    dia.load_state_dict(network(YARDSTICK, cross_rope=False, half=True).state_dict())
    np.testing.assert_array_equal(codes(pipeline), before)


@pytest.mark.parametrize(("small", "threads"), [(True, 1), (False, 3)])
def test_rows_of_a_small_network_run_in_one_thread(
    monkeypatch: pytest.MonkeyPatch, small: bool, threads: int
) -> None:
    """Their draws too; and torch's own number of threads comes back, also after an error."""
    monkeypatch.setattr(few_rows, "SMALL", 2**40 if small else 0)
    pipeline = compose(YARDSTICK, tiny("dia", seed=4), tiny("dac"))
    before, seen = torch.get_num_threads(), []

    def candidates(*given: object, **named: object) -> None:
        seen.append(torch.get_num_threads())
        raise ArithmeticError

    monkeypatch.setattr(plain, "draw_rows", candidates)
    torch.set_num_threads(3)
    try:
        with pytest.raises(ArithmeticError):
            codes(pipeline)
        assert seen == [threads]
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_prompts_of_unequal_lengths_are_read_as_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no row of one in a step that texts share."""
    pipeline = compose(YARDSTICK, tiny("dia", seed=4), tiny("dac"))
    random, read, known = np.random.default_rng(6), FewRowsDecoder.read, list[int]()

    def noted(decoder: FewRowsDecoder, texts: Sequence[DiaInputs]) -> list[TextRead]:
        known.extend(text.positions for text in texts)
        return read(decoder, texts)

    monkeypatch.setattr(FewRowsDecoder, "read", noted)
    codes = [random.integers(0, 60, (4, frames)) for frames in (7, 3)]
    prompts = [Prompt.of(codes=codes[0], text="[S1] A."), None, Prompt.of(codes=codes[1], text="[S1] B.")]
    texts = ["[S1] One.", "[S2] Two, and more.", "[S1] Three."]
    every = pipeline.generate_codes(texts, prompts, seed=[1, 2, 3], max_frames=12)
    assert sorted(known) == [0, 3, 7]  # those without recordings to encode join first
    for place, (text, prompt) in enumerate(zip(texts, prompts, strict=True)):
        [alone] = pipeline.generate_codes([text], [prompt], seed=place + 1, max_frames=12)
        np.testing.assert_array_equal(every[place], alone)

"""The step with its state on the device draws the ids of the plain step, captured on a GPU or not."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.tiny.mars5_ar import VOCABULARY, ar_config, ar_weights, deep_prompt, reference, sequence_of
from tests.torch_ref.cuda.eager import eager
from torch_ref.cuda import rows as row_kernels
from torch_ref.mars5 import ar_loop, row, step
from torch_ref.mars5.codec_lm import CodecLM
from torch_ref.mars5.sampling import draw
from tts_core.errors import GenerationError
from tts_core.mars5.config import is_norm
from tts_core.mars5.options import Mars5Options
from tts_core.nn.noise import HostNoise

DRAWS = 40
SETTINGS = {
    "defaults": Mars5Options(),
    "every filter": Mars5Options(temperature=1.1, top_k=50, top_p=0.9, typical_p=0.8),
    "long penalties": Mars5Options(temperature=1.0, top_k=0, top_p=1.0, rep_penalty_window=7),
    "greedy": Mars5Options(temperature=0.0, freq_penalty=0.5),
}
INTERPRETED = row_kernels.triton is not None and os.environ.get("TRITON_INTERPRET") == "1"


def network_of(device: str = "cpu", dtype: torch.dtype = torch.float32, **changes: Any) -> CodecLM:
    config = ar_config(**changes)
    network = CodecLM(config)
    network.load_state_dict({k: torch.from_numpy(v) for k, v in ar_weights(config).tensors.items()})
    for name, parameter in network.named_parameters():
        parameter.data = parameter.data.to(torch.float32 if is_norm(name) else dtype)
    return network.to(device).eval().requires_grad_(False)


def drawn(
    network: CodecLM,
    form: Any,
    settings: Mars5Options,
    monkeypatch: pytest.MonkeyPatch,
    draws: int = DRAWS,
) -> list[int]:
    """A whole run of the loop with one form of the step."""
    monkeypatch.setattr(ar_loop, "make_step", form)
    if network.embed.weight.device.type == "cpu":
        monkeypatch.setattr(step, "capture", eager)
    codes = reference(30, network.config)
    sequence = sequence_of(deep_prompt(codes), draws)
    for _ in ar_loop.extend(network, codes, sequence, settings, HostNoise(5)):
        pass
    return [*sequence.generated, *[VOCABULARY.end] * sequence.ended]


@pytest.mark.parametrize("window", [3000, 16, 75])
@pytest.mark.parametrize("name", SETTINGS)
def test_state_on_the_device(name: str, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ring wraps within the prompt, after it, and never."""
    network = network_of(sliding_window=window)
    plain = drawn(network, step.Step, SETTINGS[name], monkeypatch)
    assert len(set(plain)) > 5
    assert drawn(network, step.GraphStep, SETTINGS[name], monkeypatch) == plain


def test_penalties_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Distributions equal the plain step's after given ids, some of which leave the window and return."""
    network, settings = network_of(), replace(SETTINGS["long penalties"], rep_penalty_window=3)
    codes, first = reference(30, network.config), VOCABULARY.first_speech
    given = [first + place for place in (0, 1, 1, 2, 0, 0, 3, 1, 1, 1, 4, 5, 6, 0)]
    numbers = [float(HostNoise(5).uniform(place, (1,))[0]) for place in range(len(given))]
    seen: dict[Any, dict[int, torch.Tensor]] = {step.Step: {}, step.GraphStep: {}}
    monkeypatch.setattr(step, "capture", eager)
    for form, found in seen.items():

        def choose(log_probs: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
            if not uniform.any():  # warming up
                return torch.tensor([given[7]])
            place = numbers.index(uniform.item())
            found[place] = log_probs.clone()  # noqa: B023
            return torch.tensor([given[place]])

        monkeypatch.setattr(ar_loop, "make_step", form)
        sequence = sequence_of(deep_prompt(codes), len(given))
        for _ in ar_loop.extend(network, codes, sequence, settings, HostNoise(5), choose=choose):
            pass
    assert all(list(found) == list(range(len(given))) for found in seen.values())
    torch.testing.assert_close(*(torch.cat([*found.values()]) for found in seen.values()), rtol=0, atol=1e-4)


@pytest.mark.skipif(not INTERPRETED, reason="Triton's interpreter is off (TRITON_INTERPRET=1)")
def test_kernels_in_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a few draws, since each takes seconds."""
    network, few = network_of(sliding_window=16), 4
    own = drawn(network, step.KernelStep, SETTINGS["every filter"], monkeypatch, few)
    assert own == drawn(network, step.Step, SETTINGS["every filter"], monkeypatch, few)


@pytest.mark.cuda
@pytest.mark.parametrize("window", [3000, 16])
@pytest.mark.parametrize("form", ["GraphStep", "KernelStep"])
@pytest.mark.parametrize("name", SETTINGS)
def test_captured(name: str, form: str, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if form == "KernelStep" and row_kernels.triton is None:
        pytest.skip("Triton is not installed")
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    network = network_of("cuda", sliding_window=window)
    captured = drawn(network, getattr(step, form), SETTINGS[name], monkeypatch)
    assert captured == drawn(network, step.Step, SETTINGS[name], monkeypatch)


@pytest.mark.cuda
@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_the_kernels_are_as_exact_as_the_layers(dtype: torch.dtype) -> None:
    """Row by row on the same ids, against the same weights in float64."""
    if row_kernels.triton is None:
        pytest.skip("Triton is not installed")
    network = network_of("cuda", dtype)
    exact = network_of().double()
    exact.load_state_dict({name: tensor.double() for name, tensor in network.state_dict().items()})
    codes = reference(30, network.config)
    tokens = torch.from_numpy(deep_prompt(codes).tokens)[None]

    def logits(of: CodecLM, form: Any) -> torch.Tensor:
        device = of.embed.weight.device
        ids, speaker = tokens.to(device), of.speaker(torch.from_numpy(codes.T[None]).to(device))
        length, rotary = ids.shape[1] + 1, of.positions(ids.shape[1] + 21)
        cache = of.new_cache(length + 20)
        of.next_logits(of.rows(speaker, ids), rotary(0, length), cache)
        position = torch.tensor([length], device=device)
        one_row, outs = form(of, cache, rotary, position), []
        for place in range(20):
            outs.append(one_row(of.embed(ids[:, place : place + 1])))
            position.add_(1)
        return torch.cat(outs).double().cpu()

    truth = logits(exact, row.PlainRow)
    plain, fused = ((logits(network, form) - truth).norm() for form in (row.PlainRow, row.FusedRow))
    assert 0 < fused < 1.5 * plain
    assert plain < 16 * torch.finfo(dtype).eps * truth.norm()


def test_the_cpu_takes_the_plain_step() -> None:
    network = network_of()
    sequence = sequence_of(deep_prompt(reference(5, network.config)), 3)
    speaker = torch.zeros(1, network.config.hidden_size)
    assert type(step.make_step(network, speaker, sequence, Mars5Options(), draw)) is step.Step
    assert row.runs(network) is INTERPRETED


@pytest.mark.parametrize("form", [step.Step, step.GraphStep], ids=lambda form: form.__name__)
def test_logits_that_are_no_numbers(form: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    network = network_of()
    network.ar.layers[1].ffn_norm.weight.data[3] = torch.inf  # pyright: ignore
    with pytest.raises(GenerationError, match=r"logits are NaN or infinite in float32 \(text 1, row 0\)"):
        drawn(network, form, Mars5Options(), monkeypatch)


def test_no_room_draws_nothing() -> None:
    network, settings = network_of(), replace(Mars5Options(), generate_max_len_override=4)
    codes = reference(5, network.config)
    sequence = sequence_of(deep_prompt(codes), 0)
    assert list(ar_loop.extend(network, codes, sequence, settings, HostNoise(1))) == []
    np.testing.assert_array_equal(sequence.ids, sequence.prompt.tokens)

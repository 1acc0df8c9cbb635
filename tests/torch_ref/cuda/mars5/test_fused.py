"""The diffusion on kernels against the plain layers, on a GPU or in Triton's interpreter."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.tiny.mars5_nar import TEXT, codes
from tests.tolerance import assert_within
from tests.torch_ref.cuda.marks import DEVICE, kernel_marks
from tests.torch_ref.cuda.mars5.diffusions import cells, small
from torch_ref.cuda.mars5.frames import draw_cells
from torch_ref.cuda.mars5.fused import FusedTransformer
from torch_ref.cuda.mars5.reverse import KernelDenoisingStep
from torch_ref.cuda.triton import INTERPRETED
from torch_ref.limits.remedies import at_least_float32
from torch_ref.mars5 import reverse
from torch_ref.mars5.diffusion import at_timestep, guided, posterior
from torch_ref.mars5.residual_transformer import ResidualTransformer
from tts_core.mars5.diffusion import Diffusion

pytestmark = kernel_marks()

STEPS = 5
HALVES = [] if INTERPRETED else [torch.bfloat16, torch.float16]  # the interpreter rounds towards zero


def logits_of(network: ResidualTransformer, form: Any, *, deep: bool, guided: bool = True) -> torch.Tensor:
    """Logits at two timesteps, (2, R, S', Q', K) on the CPU."""
    begin, settings = cells(deep=deep), Diffusion(timesteps=STEPS, guidance_w=3.0 if guided else 1.0)
    source = reverse.ReverseDiffusion(network).read(TEXT, codes(4, seed=2), begin, settings)
    step = form(network, source, begin, settings)
    device = network.text_embed.weight.device
    state = torch.from_numpy(begin.codes.copy()).long().to(device)
    made = [step.logits(state, torch.tensor([t], device=device)).cpu() for t in (0, 3)]
    return at_least_float32(torch.stack(made))


@torch.inference_mode()
@pytest.mark.parametrize("guided", [False, True], ids=["one row", "guided"])
@pytest.mark.parametrize("deep", [False, True], ids=["shallow", "deep"])
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
def test_logits_are_as_exact_as_the_layers(dtype: torch.dtype, *, deep: bool, guided: bool) -> None:
    truth = logits_of(small().double(), reverse.DenoisingStep, deep=deep, guided=guided)
    network = small(DEVICE, dtype)
    own, plain = (
        logits_of(network, form, deep=deep, guided=guided)
        for form in (KernelDenoisingStep, reverse.DenoisingStep)
    )
    assert own.shape == plain.shape
    if dtype == torch.float32:
        assert_within(own.numpy(), plain.numpy(), truth.numpy(), "logits")
    off, plainly_off = ((x - truth).norm() for x in (own, plain))
    assert off < 1.5 * plainly_off + 1e-6 * truth.norm()


@torch.inference_mode()
def test_cells_of_equal_logits_are_drawn_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """At every timestep, with known cells among the unknown ones."""
    settings, begin = Diffusion(timesteps=STEPS), cells(deep=True)
    source = reverse.ReverseDiffusion(small(DEVICE)).read(TEXT, codes(4, seed=2), begin, settings)
    step = reverse.DenoisingStep(small(DEVICE), source, begin, settings)
    random = np.random.default_rng(3)
    frames, books = begin.codes.shape
    shape = 2, frames - step.first_frame, books - step.first_book, step.n_classes
    made = torch.from_numpy(random.normal(0, 2, shape).astype(np.float32)).to(DEVICE)
    state = torch.from_numpy(random.integers(0, step.n_classes, (frames, books))).to(DEVICE)
    padded = torch.nn.functional.pad(made, (0, 1), value=99.0)[..., :-1]  # past the classes: never drawn
    for t in range(STEPS):
        at, numbers = torch.tensor([t], device=DEVICE), random.random((2, frames, books), np.float32)
        uniform = torch.from_numpy(numbers).to(DEVICE)
        clean = guided(made.clone(), settings.guidance_w, settings.x_0_temp).log_softmax(dim=-1)
        box = state[step.first_frame :, step.first_book :]
        log_p = posterior(clean, box, at_timestep(step.table, at))
        monkeypatch.setattr(step, "log_posterior", lambda *_, log_p=log_p: log_p)
        own = draw(step, padded, state, uniform, at, settings)
        assert torch.equal(own, step.compute(state, at, uniform)), t
    assert step.finite


def draw(
    step: Any,
    logits: torch.Tensor,
    state: torch.Tensor,
    uniform: torch.Tensor,
    t: torch.Tensor,
    how: Diffusion,
) -> torch.Tensor:
    return draw_cells(
        logits,
        state,
        step.clean,
        step.known,
        uniform,
        step.table,
        t,
        step.finite,
        first_frame=step.first_frame,
        first_book=step.first_book,
        guidance_w=how.guidance_w,
        x_0_temp=how.x_0_temp,
    )


@torch.inference_mode()
@pytest.mark.parametrize("row", [0, 1])
def test_logits_that_are_no_numbers_are_noted(row: int) -> None:
    settings, begin = Diffusion(timesteps=STEPS), cells(deep=False)
    source = reverse.ReverseDiffusion(small(DEVICE)).read(TEXT, codes(4, seed=2), begin, settings)
    step = reverse.DenoisingStep(small(DEVICE), source, begin, settings)
    frames, books = begin.codes.shape
    logits = torch.zeros(2, frames, books - 1, step.n_classes, device=DEVICE)
    state = torch.zeros(frames, books, dtype=torch.long, device=DEVICE)
    uniform = torch.full((2, frames, books), 0.5, device=DEVICE)
    draw(step, logits, state, uniform, torch.tensor([1], device=DEVICE), settings)
    assert step.finite
    logits[row, -1, -1, 3] = torch.nan
    drawn = draw(step, logits, state, uniform, torch.tensor([1], device=DEVICE), settings)
    assert not step.finite
    assert (drawn < step.n_classes).all()


def test_weights_are_stored_once() -> None:
    """A second run joins nothing again."""
    network, begin, settings = small(DEVICE), cells(deep=True), Diffusion(timesteps=2)
    source = reverse.ReverseDiffusion(network).read(TEXT, codes(4, seed=2), begin, settings)
    with torch.inference_mode():
        first, second = (FusedTransformer(network, source) for _ in range(2))
    assert first.head_weights.data_ptr() == second.head_weights.data_ptr()
    assert first.text_weights.data_ptr() == second.text_weights.data_ptr()
    assert first.tables.data_ptr() == second.tables.data_ptr()
    inside = network.residual_decoder[1][1].weight.untyped_storage().data_ptr()  # pyright: ignore
    assert inside == first.head_weights.untyped_storage().data_ptr()

"""MARS5's reverse diffusion: from noise to the codes of all codebooks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from torch_ref.cuda.capture import capture
from torch_ref.device import name_of
from torch_ref.layers.norm import at_least_float32
from torch_ref.mars5.diffusion import (
    at_timestep,
    draw_per_cell,
    draw_per_class,
    guided,
    noised_per_cell,
    noised_per_class,
    posterior,
)
from torch_ref.mars5.frames import draw_cells
from torch_ref.mars5.fused import FusedTransformer, runs
from torch_ref.mars5.residual_transformer import ResidualTransformer, Source
from tts_core.errors import GenerationError
from tts_core.mars5.diffusion import Cells, Diffusion, constants, numbers_for
from tts_core.mars5.schedule import reverse_order
from tts_core.nn.guard import REMEDY
from tts_core.nn.noise import Noise


class Step:
    """One step down, the plain form: every operation is launched from Python.

    `finite` is True while all logits so far are finite.
    """

    def __init__(self, network: ResidualTransformer, source: Source, cells: Cells, settings: Diffusion):
        self.network, self.source, self.settings = network, source, settings
        self.n_classes = network.config.n_classes
        table = constants(settings.timesteps, self.n_classes, settings.q0_override_steps)
        like = source.positions
        self.table = torch.as_tensor(table, dtype=like.dtype, device=like.device)
        self.clean = torch.from_numpy(np.ascontiguousarray(cells.clean)).long().to(self.table.device)
        self.known = torch.from_numpy(np.ascontiguousarray(cells.known)).to(self.table.device)
        self.first_frame, self.first_book = cells.unknown_from
        self.finite = torch.ones((), dtype=torch.bool, device=self.table.device)

    def __call__(self, codes: Tensor, t: Tensor, numbers: Tensor) -> Tensor:
        """Run a step. codes: (S, Q) entering timestep t, (1,) int64.  numbers: of `numbers_for`. → (S, Q)."""
        return self.compute(codes, t, numbers)

    def compute(self, codes: Tensor, t: Tensor, numbers: Tensor) -> Tensor:
        """Compute the step."""
        at, per_cell = at_timestep(self.table, t), self.settings.draws == "per cell"
        log_p = self.log_posterior(codes, t)
        own = numbers[:, self.first_frame :, self.first_book :]
        drawn = draw_per_cell(log_p, own) if per_cell else draw_per_class(log_p, own[0])
        if per_cell:
            after = noised_per_cell(self.clean, numbers, at, self.n_classes)
        else:
            after = noised_per_class(self.clean, numbers[1], at)
        box = after[self.first_frame :, self.first_book :]
        box.copy_(torch.where(self.known[self.first_frame :, self.first_book :], box, drawn))
        after[:, 0] = torch.where(at.pinned > 0, self.clean[:, 0], after[:, 0])
        return after

    def log_posterior(self, codes: Tensor, t: Tensor) -> Tensor:
        """Compute it for the cells from the first unknown frame and codebook on. (S, Q) → (S', Q', K)."""
        clean = guided(self.logits(codes, t), self.settings.guidance_w, self.settings.x_0_temp)
        log_x0 = clean.log_softmax(dim=-1)
        self.finite &= log_x0[..., 0].isfinite().all()  # NaN or infinity makes the whole row non-finite
        return posterior(log_x0, codes[self.first_frame :, self.first_book :], at_timestep(self.table, t))

    def logits(self, codes: Tensor, t: Tensor) -> Tensor:
        """Compute logits of the same cells, for every row of the source. (S, Q) → (R, S', Q', K)."""
        hidden = self.network.hidden(codes[None], self.source, t)[:, self.first_frame :]
        return self.network.head(hidden, range(self.first_book, codes.shape[1]))


class GraphStep(Step):
    """The step captured as a CUDA graph: one launch per step instead of a thousand. Returns one buffer."""

    def __init__(self, network: ResidualTransformer, source: Source, cells: Cells, settings: Diffusion):
        super().__init__(network, source, cells, settings)
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, codes: Tensor, t: Tensor, numbers: Tensor) -> Tensor:
        if self.graph is None:
            self.codes, self.t, self.numbers = codes.contiguous().clone(), t.clone(), numbers.clone()
            self.graph, self.after = capture(
                lambda: self.codes.copy_(self.compute(self.codes, self.t, self.numbers)),
                codes.device,
                again=lambda: None,  # everything that the warm-up changed is set below
            )
        self.codes.copy_(codes)
        self.t.copy_(t)
        self.numbers.copy_(numbers)
        self.graph.replay()
        return self.after


class KernelStep(GraphStep):
    """The captured step on kernels; with two numbers per cell, all draws are one of them."""

    def __init__(self, network: ResidualTransformer, source: Source, cells: Cells, settings: Diffusion):
        super().__init__(network, source, cells, settings)
        self.fused = FusedTransformer(network, source, frame=self.first_frame, book=self.first_book)

    def compute(self, codes: Tensor, t: Tensor, numbers: Tensor) -> Tensor:
        """Compute the step."""
        if self.settings.draws != "per cell":
            return super().compute(codes, t, numbers)
        return draw_cells(
            self.fused.logits(codes, t),
            codes,
            self.clean,
            self.known,
            numbers,
            self.table,
            t,
            self.finite,
            first_frame=self.first_frame,
            first_book=self.first_book,
            n_classes=self.n_classes,
            guidance_w=self.settings.guidance_w,
            x_0_temp=self.settings.x_0_temp,
        )

    def logits(self, codes: Tensor, t: Tensor) -> Tensor:
        """Compute logits as in Step."""
        return at_least_float32(self.fused.logits(codes, t)[..., : self.n_classes].permute(1, 2, 0, 3))


def make_step(network: ResidualTransformer, source: Source, cells: Cells, settings: Diffusion) -> Step:
    """Build the fastest form of the step for the network's device."""
    form = Step
    if network.text_embed.weight.is_cuda:
        form = KernelStep if runs(network) else GraphStep
    return form(network, source, cells, settings)


class ReverseDiffusion:
    """A residual transformer with its unconditional speaker vector, which all runs share."""

    def __init__(self, network: ResidualTransformer):
        self.network = network
        self._nobody: Tensor | None = None

    @torch.inference_mode()
    def read(self, text: np.ndarray, reference: np.ndarray, cells: Cells, settings: Diffusion) -> Source:
        """Build a run's inputs besides codes. text: (N,) ids.  reference: (Q, P), the speaker's codes."""
        speakers = self.network.speaker(self._to_device(reference.T[None]).long())
        if settings.guided:
            if self._nobody is None:
                self._nobody = self.network.no_speaker()
            speakers = torch.cat((speakers, self._nobody))
        return self.network.read(
            self._to_device(text[None]).long(),
            speakers,
            frames=len(cells.codes),
            timesteps=settings.timesteps,
        )

    def run(
        self,
        text: np.ndarray,
        reference: np.ndarray,
        cells: Cells,
        settings: Diffusion,
        *,
        noise: Noise,
    ) -> np.ndarray:
        """Draw all codebooks of the cells' frames, the prompt's included. → (Q, S) int32.

        Arguments and errors as in `timesteps`.
        """
        *_, codes = self.timesteps(text, reference, cells, settings, noise=noise)
        assert codes is not None
        return codes

    def timesteps(
        self,
        text: np.ndarray,
        reference: np.ndarray,
        cells: Cells,
        settings: Diffusion,
        *,
        noise: Noise,
    ) -> Iterator[np.ndarray | None]:
        """Yield None before each timestep, and at the end the codes of `run`.

        text: (N,) ids.  reference: (Q, P).  noise: see tts_core.mars5.diffusion.
        Raises GenerationError if the network computes NaN or infinity.
        """
        for codes in self.states(text, reference, cells, settings, noise=noise):
            yield None
            last = codes
        yield last.int().cpu().numpy().T

    @torch.inference_mode()
    def states(
        self,
        text: np.ndarray,
        reference: np.ndarray,
        cells: Cells,
        settings: Diffusion,
        *,
        noise: Noise,
    ) -> Iterator[Tensor]:
        """Yield the state entering each timestep, T - 1 first, and finally the clean one. (S, Q) int64 each.

        A state may be overwritten by the next. Nothing is read from the device before the end.
        """
        step = make_step(self.network, self.read(text, reference, cells, settings), cells, settings)
        codes, order = self._to_device(cells.codes).long(), reverse_order(settings.timesteps)[:-1]
        places = torch.tensor(order, device=codes.device)
        for place, t in enumerate(order):
            yield codes
            numbers = numbers_for(noise, settings.draws, place, cells, step.n_classes, last=t == 0)
            codes = step(codes, places[place : place + 1], self._to_device(numbers).to(step.table.dtype))
        if not step.finite.item():
            dtype = name_of(self.network.text_embed.weight.dtype)
            remedy = REMEDY.get(dtype, "the weights are damaged")
            raise GenerationError(
                f"generation: the diffusion's logits are NaN or infinite in {dtype}; {remedy}"
            )
        yield codes

    def _to_device(self, array: np.ndarray) -> Tensor:
        device = self.network.text_embed.weight.device
        return torch.from_numpy(np.ascontiguousarray(array)).to(device, non_blocking=True)

"""MARS5's reverse diffusion: from noise to the codes of all codebooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

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
from torch_ref.mars5.fused import FusedTransformer, Reading, runs
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

    def release(self) -> None:
        """Free the memory that the next step would use by itself."""

    def __call__(self, codes: Tensor, t: Tensor, numbers: Tensor) -> Tensor:
        """Run a step. codes: (S, Q) entering timestep t, (1,) int64.  numbers: of `numbers_for`. → (S, Q)."""
        return self.compute(codes, t, numbers)

    def compute(self, codes: Tensor, t: Tensor, numbers: Tensor) -> Tensor:
        """Compute the step."""
        return self.drawn(self.logits(codes, t), codes, t, numbers)

    def drawn(self, logits: Tensor, codes: Tensor, t: Tensor, numbers: Tensor) -> Tensor:
        """Draw the cells below, given the result of `logits`. Other arguments as in __call__."""
        at, per_cell = at_timestep(self.table, t), self.settings.draws == "per cell"
        log_p = self.log_posterior(logits, codes, t)
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

    def log_posterior(self, logits: Tensor, codes: Tensor, t: Tensor) -> Tensor:
        """Compute it for the cells from the first unknown frame and codebook on. → (S', Q', K)."""
        clean = guided(logits, self.settings.guidance_w, self.settings.x_0_temp)
        log_x0 = clean.log_softmax(dim=-1)
        self.finite &= log_x0[..., 0].isfinite().all()  # NaN or infinity makes the whole row non-finite
        return posterior(log_x0, codes[self.first_frame :, self.first_book :], at_timestep(self.table, t))

    def logits(self, codes: Tensor, t: Tensor) -> Tensor:
        """Compute logits of the same cells, for every row of the source. (S, Q) → (R, S', Q', K)."""
        hidden = self.network.hidden(codes[None], self.source, t)[:, self.first_frame :]
        return self.network.head(hidden, range(self.first_book, codes.shape[1]))


Compute = Callable[[Sequence[Tensor], Tensor, Sequence[Tensor]], Sequence[Tensor]]


class Captured:
    """A step of one run or several, captured as a CUDA graph: one launch instead of a thousand.

    It keeps no reference to its computation, which owns it: a cycle would free the graph at any time.
    """

    def __init__(self) -> None:
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(
        self, compute: Compute, codes: Sequence[Tensor], t: Tensor, numbers: Sequence[Tensor]
    ) -> list[Tensor]:
        """Run the step, the same `compute` at every call. It returns the same buffers each time."""
        if self.graph is None:
            self.codes = [one.contiguous().clone() for one in codes]
            self.t, self.numbers = t.clone(), [one.clone() for one in numbers]
            step = partial(self._step, compute)
            self.graph, _ = capture(step, t.device, again=lambda: None)  # inputs are set below
        for own, given in zip([*self.codes, self.t, *self.numbers], [*codes, t, *numbers], strict=True):
            if own is not given:
                own.copy_(given)
        self.graph.replay()
        return self.codes

    def _step(self, compute: Compute) -> Tensor:
        for own, after in zip(self.codes, compute(self.codes, self.t, self.numbers), strict=True):
            own.copy_(after)
        return self.t


class GraphStep(Step):
    """The step captured as a CUDA graph. Returns one buffer."""

    def __init__(self, network: ResidualTransformer, source: Source, cells: Cells, settings: Diffusion):
        super().__init__(network, source, cells, settings)
        self.captured = Captured()

    def release(self) -> None:
        """Free the graph."""
        self.captured = Captured()

    def __call__(self, codes: Tensor, t: Tensor, numbers: Tensor) -> Tensor:
        return self.captured(self._each, [codes], t, [numbers])[0]

    def _each(self, codes: Sequence[Tensor], t: Tensor, numbers: Sequence[Tensor]) -> Sequence[Tensor]:
        return [self.compute(codes[0], t, numbers[0])]


class KernelStep(GraphStep):
    """The captured step on kernels; with two numbers per cell, all draws are one of them."""

    def __init__(self, network: ResidualTransformer, source: Source, cells: Cells, settings: Diffusion):
        super().__init__(network, source, cells, settings)
        self.fused = FusedTransformer(network, [Reading.of(network, source)])

    def drawn(self, logits: Tensor, codes: Tensor, t: Tensor, numbers: Tensor) -> Tensor:
        """Draw as in Step. logits: of any strides, the last one 1."""
        if self.settings.draws != "per cell":
            return super().drawn(at_least_float32(logits), codes, t, numbers)
        return draw_cells(
            logits,
            codes,
            self.clean,
            self.known,
            numbers,
            self.table,
            t,
            self.finite,
            first_frame=self.first_frame,
            first_book=self.first_book,
            guidance_w=self.settings.guidance_w,
            x_0_temp=self.settings.x_0_temp,
        )

    def logits(self, codes: Tensor, t: Tensor) -> Tensor:
        """Compute logits as in Step, in the network's dtype."""
        return self.fused.logits(codes, t, [self.first_frame], self.first_book)


def make_step(network: ResidualTransformer, source: Source, cells: Cells, settings: Diffusion) -> Step:
    """Build the fastest form of the step for the network's device."""
    form = Step
    if network.text_embed.weight.is_cuda:
        form = KernelStep if runs(network) else GraphStep
    return form(network, source, cells, settings)


class Run:
    """A diffusion under way. codes: (S, Q) int64 entering the next timestep, clean at the end.

    The next timestep may overwrite them.
    """

    def __init__(self, step: Step, cells: Cells, noise: Noise):
        self.step, self.cells, self.noise = step, cells, noise
        self.order = reverse_order(step.settings.timesteps)[:-1]
        self.times = to_device(step.network, np.array(self.order))
        self.place, self.finite = 0, step.finite
        self.codes = to_device(step.network, cells.codes).long()

    @property
    def done(self) -> bool:
        """True after the last timestep."""
        return self.place == len(self.order)

    def take(self) -> tuple[Tensor, Tensor]:
        """Draw the numbers of the next timestep, again if its call has failed. → (1,) int64, numbers."""
        place, step = self.place, self.step
        last = self.order[place] == 0
        numbers = numbers_for(self.noise, step.settings.draws, place, self.cells, step.n_classes, last=last)
        step.finite = self.finite
        return self.times[place : place + 1], to_device(step.network, numbers).to(step.table.dtype)

    def accept(self, codes: Tensor) -> None:
        """Count the timestep as run. codes: after it, as it returned them."""
        self.codes, self.finite = codes, self.step.finite
        self.place += 1

    @torch.inference_mode()
    def advance(self) -> None:
        """Run a timestep in a call of its own. Nothing is read from the device."""
        t, numbers = self.take()
        self.accept(self.step(self.codes, t, numbers))

    def result(self) -> np.ndarray:
        """Read the codes after the last timestep, the prompt's included. → (Q, S) int32.

        Raises GenerationError if the network computed NaN or infinity.
        """
        if not self.step.finite.item():
            dtype = name_of(self.step.network.text_embed.weight.dtype)
            remedy = REMEDY.get(dtype, "the weights are damaged")
            raise GenerationError(
                f"generation: the diffusion's logits are NaN or infinite in {dtype}; {remedy}"
            )
        return self.codes.int().cpu().numpy().T


class ReverseDiffusion:
    """A residual transformer with its unconditional speaker vector, which all runs share."""

    def __init__(self, network: ResidualTransformer):
        self.network = network
        self._nobody: Tensor | None = None

    @torch.inference_mode()
    def read(self, text: np.ndarray, reference: np.ndarray, cells: Cells, settings: Diffusion) -> Source:
        """Build a run's inputs besides codes. text: (N,) ids.  reference: (Q, P), the speaker's codes."""
        speakers = self.network.speaker(to_device(self.network, reference.T[None]).long())
        if settings.guided:
            if self._nobody is None:
                self._nobody = self.network.no_speaker()
            speakers = torch.cat((speakers, self._nobody))
        return self.network.read(
            to_device(self.network, text[None]).long(),
            speakers,
            frames=len(cells.codes),
            timesteps=settings.timesteps,
        )

    @torch.inference_mode()
    def begin(
        self,
        text: np.ndarray,
        reference: np.ndarray,
        cells: Cells,
        settings: Diffusion,
        *,
        noise: Noise,
    ) -> Run:
        """Begin to draw all codebooks of the cells' frames. text: (N,) ids.  reference: (Q, P).

        noise: see tts_core.mars5.diffusion.
        """
        source = self.read(text, reference, cells, settings)
        return Run(make_step(self.network, source, cells, settings), cells, noise)

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

        Arguments as in `begin`, errors as in Run.result.
        """
        run = self.begin(text, reference, cells, settings, noise=noise)
        while not run.done:
            run.advance()
        return run.result()


def to_device(network: ResidualTransformer, array: np.ndarray) -> Tensor:
    """Copy an array to the network's device."""
    device = network.text_embed.weight.device
    return torch.from_numpy(np.ascontiguousarray(array)).to(device, non_blocking=True)

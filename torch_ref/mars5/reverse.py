"""MARS5's reverse diffusion: from noise to the codes of all codebooks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from torch_ref.device import name_of, to_device
from torch_ref.mars5.diffusion import (
    at_timestep,
    draw_per_cell,
    draw_per_class,
    guided,
    noised_per_cell,
    noised_per_class,
    posterior,
)
from torch_ref.mars5.residual_transformer import Mars5Source, ResidualTransformer
from tts_core.errors import GenerationError
from tts_core.mars5.diffusion import Cells, Diffusion, constants, numbers_for
from tts_core.nn.guard import REMEDY
from tts_core.nn.noise import Noise


class DenoisingStep:
    """One step down, the plain form: every operation is launched from Python.

    `finite` is True while all logits so far are finite.
    """

    def __init__(self, network: ResidualTransformer, source: Mars5Source, cells: Cells, settings: Diffusion):
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


MakeStep = Callable[[ResidualTransformer, Mars5Source, Cells, Diffusion], DenoisingStep]


class DiffusionRun:
    """A diffusion under way. codes: (S, Q) int64 entering the next timestep, clean at the end.

    The next timestep may overwrite them.
    """

    def __init__(self, denoise: DenoisingStep, cells: Cells, noise: Noise):
        self.denoise, self.cells, self.noise = denoise, cells, noise
        self.order = [*reversed(range(denoise.settings.timesteps))]
        self.times = _to_device(denoise.network, np.array(self.order))
        self.index = 0
        self.codes = _to_device(denoise.network, cells.codes).long()

    @property
    def done(self) -> bool:
        """True after the last timestep."""
        return self.index == len(self.order)

    @torch.inference_mode()
    def step(self) -> None:
        """Run a timestep. Nothing is read from the device."""
        denoise, index = self.denoise, self.index
        draws, last = denoise.settings.draws, self.order[index] == 0
        numbers = numbers_for(self.noise, draws, index, self.cells, denoise.n_classes, last=last)
        given = _to_device(denoise.network, numbers).to(denoise.table.dtype)
        self.codes = denoise(self.codes, self.times[index : index + 1], given)
        self.index += 1

    def result(self) -> np.ndarray:
        """Read the codes after the last timestep, the prompt's included. → (Q, S) int32.

        Raises GenerationError if the network computed NaN or infinity.
        """
        if not self.denoise.finite.item():
            dtype = name_of(self.denoise.network.text_embed.weight.dtype)
            remedy = REMEDY.get(dtype, "the weights are damaged")
            raise GenerationError(
                f"generation: the diffusion's logits are NaN or infinite in {dtype}; {remedy}"
            )
        return self.codes.int().cpu().numpy().T


class ReverseDiffusion:
    """A residual transformer with its unconditional speaker vector, which all runs share.

    make_step: builds each run's step.
    """

    def __init__(self, network: ResidualTransformer, make_step: MakeStep = DenoisingStep):
        self.network, self.make_step = network, make_step
        self._nobody: Tensor | None = None

    @torch.inference_mode()
    def read(self, text: np.ndarray, reference: np.ndarray, cells: Cells, settings: Diffusion) -> Mars5Source:
        """Build a run's inputs besides codes. text: (N,) ids.  reference: (Q, P), the speaker's codes."""
        speakers = self.network.speaker(_to_device(self.network, reference.T[None]).long())
        if settings.guided:
            if self._nobody is None:
                self._nobody = self.network.no_speaker()
            speakers = torch.cat((speakers, self._nobody))
        return self.network.read(
            _to_device(self.network, text[None]).long(),
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
    ) -> DiffusionRun:
        """Begin to draw all codebooks of the cells' frames.

        text: (N,) ids.
        reference: (Q, P).
        noise: see tts_core.mars5.diffusion.
        """
        source = self.read(text, reference, cells, settings)
        return DiffusionRun(self.make_step(self.network, source, cells, settings), cells, noise)


def _to_device(network: ResidualTransformer, array: np.ndarray) -> Tensor:
    """Copy an array to the network's device."""
    return to_device(array, network.text_embed.weight.device)

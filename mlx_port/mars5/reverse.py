"""MARS5's reverse diffusion: from noise to the codes of all codebooks."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import numpy as np

from mlx_port.mars5.diffusion import (
    at_timestep,
    draw_per_cell,
    draw_per_class,
    guided,
    noised_per_cell,
    noised_per_class,
    posterior,
)
from mlx_port.mars5.residual_transformer import Mars5Source, ResidualTransformer
from tts_core.errors import GenerationError
from tts_core.mars5.diffusion import Cells, Diffusion, constants, numbers_for
from tts_core.nn.guard import REMEDY
from tts_core.nn.noise import Noise


class DenoisingStep:
    """One step down, the plain form: every operation is built from Python.

    `finite` is True while all logits so far are finite.
    """

    def __init__(self, network: ResidualTransformer, source: Mars5Source, cells: Cells, settings: Diffusion):
        self.network, self.source, self.settings = network, source, settings
        self.n_classes = network.config.n_classes
        table = constants(settings.timesteps, self.n_classes, settings.q0_override_steps)
        self.table = mx.array(table.astype(np.float32))
        self.clean = mx.array(cells.clean)
        self.known = mx.array(cells.known)
        self.first_frame, self.first_book = cells.unknown_from
        self.finite = mx.array(True)

    def __call__(self, codes: mx.array, t: mx.array, numbers: mx.array) -> mx.array:
        """Run a step. codes: (S, Q) entering timestep t, (1,) int32.  numbers: of `numbers_for`. → (S, Q)."""
        return self.compute(codes, t, numbers)

    def compute(self, codes: mx.array, t: mx.array, numbers: mx.array) -> mx.array:
        """Compute the step."""
        return self.drawn(self.logits(codes, t), codes, t, numbers)

    def drawn(self, logits: mx.array, codes: mx.array, t: mx.array, numbers: mx.array) -> mx.array:
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
        box = mx.where(self.known[self.first_frame :, self.first_book :], box, drawn)
        after[self.first_frame :, self.first_book :] = box
        after[:, 0] = mx.where(at.pinned > 0, self.clean[:, 0], after[:, 0])
        return after

    def log_posterior(self, logits: mx.array, codes: mx.array, t: mx.array) -> mx.array:
        """Compute it for the cells from the first unknown frame and codebook on. → (S', Q', K)."""
        clean = guided(logits, self.settings.guidance_w, self.settings.x_0_temp)
        log_x0 = clean - mx.logsumexp(clean, axis=-1, keepdims=True)
        # NaN or infinity makes the whole row non-finite
        self.finite = self.finite & mx.isfinite(log_x0[..., 0]).all()
        return posterior(log_x0, codes[self.first_frame :, self.first_book :], at_timestep(self.table, t))

    def logits(self, codes: mx.array, t: mx.array) -> mx.array:
        """Compute logits of the same cells, for every row of the source. (S, Q) → (R, S', Q', K)."""
        hidden = self.network.hidden(codes[None], self.source, t)[:, self.first_frame :]
        return self.network.head(hidden, range(self.first_book, codes.shape[1]))


MakeStep = Callable[[ResidualTransformer, Mars5Source, Cells, Diffusion], DenoisingStep]


class DiffusionRun:
    """A diffusion under way. codes: (S, Q) int32 entering the next timestep, clean at the end."""

    def __init__(self, denoise: DenoisingStep, cells: Cells, noise: Noise):
        self.denoise, self.cells, self.noise = denoise, cells, noise
        self.order = [*reversed(range(denoise.settings.timesteps))]
        self.times = mx.array(self.order)
        self.index = 0
        self.codes = mx.array(cells.codes)

    @property
    def done(self) -> bool:
        """True after the last timestep."""
        return self.index == len(self.order)

    def step(self) -> None:
        """Run a timestep. Nothing is read from the device."""
        denoise, index = self.denoise, self.index
        draws, last = denoise.settings.draws, self.order[index] == 0
        numbers = numbers_for(self.noise, draws, index, self.cells, denoise.n_classes, last=last)
        self.codes = denoise(self.codes, self.times[index : index + 1], mx.array(numbers))
        mx.async_eval(self.codes, denoise.finite)
        self.index += 1

    def result(self) -> np.ndarray:
        """Read the codes after the last timestep, the prompt's included. → (Q, S) int32.

        Raises GenerationError if the network computed NaN or infinity.
        """
        if not self.denoise.finite.item():
            dtype = str(self.denoise.network.text_embed.weight.dtype).removeprefix("mlx.core.")
            remedy = REMEDY.get(dtype, "the weights are damaged")
            raise GenerationError(
                f"generation: the diffusion's logits are NaN or infinite in {dtype}; {remedy}"
            )
        return np.array(self.codes).T


class ReverseDiffusion:
    """A residual transformer with its unconditional speaker vector, which all runs share.

    make_step: builds each run's step.
    """

    def __init__(self, network: ResidualTransformer, make_step: MakeStep = DenoisingStep):
        self.network, self.make_step = network, make_step
        self._nobody: mx.array | None = None

    def read(self, text: np.ndarray, reference: np.ndarray, cells: Cells, settings: Diffusion) -> Mars5Source:
        """Build a run's inputs besides codes. text: (N,) ids.  reference: (Q, P), the speaker's codes."""
        speakers = self.network.speaker(mx.array(reference.T[None]))
        if settings.guided:
            if self._nobody is None:
                self._nobody = self.network.no_speaker()
            speakers = mx.concatenate([speakers, self._nobody])
        return self.network.read(
            mx.array(text[None]),
            speakers,
            frames=len(cells.codes),
            timesteps=settings.timesteps,
        )

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
        mx.eval(source)  # else every step would recompute it
        return DiffusionRun(self.make_step(self.network, source, cells, settings), cells, noise)

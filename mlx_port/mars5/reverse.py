"""MARS5's reverse diffusion: from noise to the codes of all codebooks."""

from __future__ import annotations

from collections.abc import Iterator

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
from mlx_port.mars5.residual_transformer import ResidualTransformer, Source
from tts_core.errors import GenerationError
from tts_core.mars5.diffusion import Cells, Diffusion, constants, numbers_for
from tts_core.mars5.schedule import reverse_order
from tts_core.nn.guard import REMEDY
from tts_core.nn.noise import Noise


class Step:
    """One step down, the plain form: every operation is built from Python.

    `finite` is True while all logits so far are finite.
    """

    def __init__(self, network: ResidualTransformer, source: Source, cells: Cells, settings: Diffusion):
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
        """The step's arithmetic."""
        at, per_cell = at_timestep(self.table, t), self.settings.draws == "per cell"
        log_p = self.log_posterior(codes, t)
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

    def log_posterior(self, codes: mx.array, t: mx.array) -> mx.array:
        """Compute it for the cells from the first unknown frame and codebook on. (S, Q) → (S', Q', K)."""
        clean = guided(self.logits(codes, t), self.settings.guidance_w, self.settings.x_0_temp)
        log_x0 = clean - mx.logsumexp(clean, axis=-1, keepdims=True)
        # NaN or infinity makes the whole row non-finite
        self.finite = self.finite & mx.isfinite(log_x0[..., 0]).all()
        return posterior(log_x0, codes[self.first_frame :, self.first_book :], at_timestep(self.table, t))

    def logits(self, codes: mx.array, t: mx.array) -> mx.array:
        """Compute logits of the same cells, for every row of the source. (S, Q) → (R, S', Q', K)."""
        hidden = self.network.hidden(codes[None], self.source, t)[:, self.first_frame :]
        return self.network.head(hidden, range(self.first_book, codes.shape[1]))


def make_step(network: ResidualTransformer, source: Source, cells: Cells, settings: Diffusion) -> Step:
    """Build the only form of the step."""
    return Step(network, source, cells, settings)


class ReverseDiffusion:
    """A residual transformer with its unconditional speaker vector, which all runs share."""

    def __init__(self, network: ResidualTransformer):
        self.network = network
        self._nobody: mx.array | None = None

    def read(self, text: np.ndarray, reference: np.ndarray, cells: Cells, settings: Diffusion) -> Source:
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
        yield np.array(last).T

    def states(
        self,
        text: np.ndarray,
        reference: np.ndarray,
        cells: Cells,
        settings: Diffusion,
        *,
        noise: Noise,
    ) -> Iterator[mx.array]:
        """Yield the state entering each timestep, T - 1 first, and finally the clean one. (S, Q) int32 each.

        Nothing is read from the device before the end.
        """
        source = self.read(text, reference, cells, settings)
        mx.async_eval(source)  # else every step would recompute it
        step = make_step(self.network, source, cells, settings)
        codes = mx.array(cells.codes)
        for place, t in enumerate(reverse_order(settings.timesteps)[:-1]):
            yield codes
            numbers = numbers_for(noise, settings.draws, place, cells, step.n_classes, last=t == 0)
            codes = step(codes, mx.array([t]), mx.array(numbers))
            mx.async_eval(codes, step.finite)
        if not step.finite.item():
            dtype = str(self.network.text_embed.weight.dtype).removeprefix("mlx.core.")
            remedy = REMEDY.get(dtype, "the weights are damaged")
            raise GenerationError(
                f"generation: the diffusion's logits are NaN or infinite in {dtype}; {remedy}"
            )
        yield codes

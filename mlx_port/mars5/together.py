"""A timestep of several of MARS5's diffusions in one call of the network, each run at its own timestep.

The frames of all runs follow one another in one row, and so do their texts. Only attention separates the
runs, so nothing is padded. Each run draws as it does by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlx.core as mx

from mlx_port.mars5.residual_transformer import ResidualTransformer
from mlx_port.mars5.reverse import DenoisingStep, DiffusionRun
from tts_core.mars5.together import alike, in_line


class Together:
    """One step down of several runs, the plain form. The runs are all guided, or none is."""

    def __init__(self, network: ResidualTransformer, steps: Sequence[DenoisingStep]):
        self.network, self.steps = network, steps
        self.sources = [step.source for step in steps]
        self.text = mx.concatenate([source.text for source in self.sources], axis=1)
        self.positions = mx.concatenate([source.positions for source in self.sources])
        self.texts = in_line([source.text.shape[1] for source in self.sources])
        self.frames = in_line([len(source.positions) for source in self.sources])
        self.first_book = min(step.first_book for step in steps)

    def __call__(self, codes: Sequence[mx.array], t: mx.array, numbers: Sequence[mx.array]) -> list[mx.array]:
        """Run a step of each run. t: (B,); codes, numbers and results as in DenoisingStep."""
        return self.compute(codes, t, numbers)

    def compute(self, codes: Sequence[mx.array], t: mx.array, numbers: Sequence[mx.array]) -> list[mx.array]:
        """Compute the step."""
        given = zip(self.steps, self.logits(codes, t), codes, t[:, None], numbers, strict=True)
        return [step.drawn(*own) for step, *own in given]

    def logits(self, codes: Sequence[mx.array], t: mx.array) -> list[mx.array]:
        """Compute logits of each run's unknown cells, as its step does. → (R, S', Q', K) each."""
        hidden = self.hidden(codes, t)
        parts = [
            hidden[:, own][:, step.first_frame :] for own, step in zip(self.frames, self.steps, strict=True)
        ]
        logits = self.network.head(mx.concatenate(parts, axis=1), range(self.first_book, codes[0].shape[1]))
        return self.parted(logits, in_line([part.shape[1] for part in parts]))

    def parted(self, logits: mx.array, rows: Sequence[slice]) -> list[mx.array]:
        """Cut logits of all runs. (R, F', Q', K) → (R, S', Q', K) each."""
        books = [step.first_book - self.first_book for step in self.steps]
        return [logits[:, own, book:] for own, book in zip(rows, books, strict=True)]

    def hidden(self, codes: Sequence[mx.array], t: mx.array) -> mx.array:
        """Compute the heads' input of all frames. → (R, F, D)."""
        net, moments = self.network, list(zip(self.sources, t[:, None], strict=True))
        heard = [mx.repeat(source.encoder_steps[at], source.text.shape[1], axis=0) for source, at in moments]
        seen = [mx.repeat(source.decoder_steps[at], len(source.positions), axis=0) for source, at in moments]
        text = self.text + mx.concatenate(heard)
        memory = net.tfm.encoder(text, list(zip(self.texts, self.texts, strict=True)))
        memory = memory.astype(net.text_embed.weight.dtype)  # once for all layers
        embedded = net.residual_encoder(mx.concatenate([*codes])[None]).astype(mx.float32)
        return net.tfm.decoder(
            embedded + self.positions + mx.concatenate(seen),
            memory,
            list(zip(self.frames, self.frames, strict=True)),
            list(zip(self.frames, self.texts, strict=True)),
        )


MakeTogether = Callable[[ResidualTransformer, Sequence[DenoisingStep]], Together]


class TimestepCall:
    """Timesteps of some runs, in as few calls as possible. Build another one when a run joins or leaves.

    make_together: builds the step that several runs share.
    """

    def __init__(
        self,
        network: ResidualTransformer,
        runs: Sequence[DiffusionRun],
        make_together: MakeTogether = Together,
    ):
        self.single = list[DiffusionRun]()
        self.groups: list[tuple[list[DiffusionRun], Together]] = []
        for group in alike(runs, lambda run: run.step.settings.guided):
            if len(group) == 1:
                self.single += group
                continue
            for run in group:
                run.step.release()
            self.groups.append((group, make_together(network, [run.step for run in group])))

    def __call__(self) -> None:
        """Run the next timestep of each. Nothing is read from the device.

        After an error each run is as before its timestep, or as after it.
        """
        for run in self.single:
            run.advance()
        for group, step in self.groups:
            t, numbers = zip(*(run.take() for run in group), strict=True)
            codes = step([run.codes for run in group], mx.concatenate([*t]), numbers)
            mx.async_eval(codes, [run.step.finite for run in group])
            for run, after in zip(group, codes, strict=True):
                run.accept(after)

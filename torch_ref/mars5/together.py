"""A timestep of several of MARS5's diffusions in one call of the network, each run at its own timestep.

The frames of all runs follow one another in one row, and so do their texts. Only attention separates the
runs, so nothing is padded. Each run draws as it does by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from torch_ref.limits.remedies import at_least_float32
from torch_ref.mars5.residual_transformer import ResidualTransformer
from torch_ref.mars5.reverse import DenoisingStep, DiffusionRun
from tts_core.mars5.together import alike, in_line


class Together:
    """One step down of several runs, the plain form. The runs are all guided, or none is."""

    def __init__(self, network: ResidualTransformer, steps: Sequence[DenoisingStep]):
        self.network, self.steps = network, steps
        self.sources = [step.source for step in steps]
        self.text = torch.cat([source.text for source in self.sources], dim=1)
        self.positions = torch.cat([source.positions for source in self.sources])
        self.texts = in_line([source.text.shape[1] for source in self.sources])
        self.frames = in_line([len(source.positions) for source in self.sources])
        self.first_book = min(step.first_book for step in steps)

    def __call__(self, codes: Sequence[Tensor], t: Tensor, numbers: Sequence[Tensor]) -> list[Tensor]:
        """Run a step of each run. t: (B,); codes, numbers and results as in DenoisingStep."""
        return self.compute(codes, t, numbers)

    def compute(self, codes: Sequence[Tensor], t: Tensor, numbers: Sequence[Tensor]) -> list[Tensor]:
        """Compute the step."""
        given = zip(self.steps, self.logits(codes, t), codes, t.split(1), numbers, strict=True)
        return [step.drawn(*own) for step, *own in given]

    def logits(self, codes: Sequence[Tensor], t: Tensor) -> list[Tensor]:
        """Compute logits of each run's unknown cells, as its step does. → (R, S', Q', K) each."""
        hidden = self.hidden(codes, t)
        parts = [
            hidden[:, own][:, step.first_frame :] for own, step in zip(self.frames, self.steps, strict=True)
        ]
        logits = self.network.head(torch.cat(parts, dim=1), range(self.first_book, codes[0].shape[1]))
        return self.parted(logits, in_line([part.shape[1] for part in parts]))

    def parted(self, logits: Tensor, rows: Sequence[slice]) -> list[Tensor]:
        """Cut logits of all runs. (R, F', Q', K) → (R, S', Q', K) each."""
        books = [step.first_book - self.first_book for step in self.steps]
        return [logits[:, own, book:] for own, book in zip(rows, books, strict=True)]

    def hidden(self, codes: Sequence[Tensor], t: Tensor) -> Tensor:
        """Compute the heads' input of all frames. → (R, F, D)."""
        net, moments = self.network, list(zip(self.sources, t.split(1), strict=True))
        heard = [source.encoder_steps[at].expand(source.text.shape[1], -1) for source, at in moments]
        seen = [source.decoder_steps[at].expand(len(source.positions), -1) for source, at in moments]
        memory = net.tfm.encoder(self.text + torch.cat(heard), list(zip(self.texts, self.texts, strict=True)))
        memory = memory.to(net.text_embed.weight.dtype)  # once for all layers
        embedded = at_least_float32(net.residual_encoder(torch.cat([*codes])[None]))
        return net.tfm.decoder(
            embedded + self.positions + torch.cat(seen),
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

    @torch.inference_mode()
    def __call__(self) -> None:
        """Run the next timestep of each. Nothing is read from the device.

        After an error each run is as before its timestep, or as after it.
        """
        for run in self.single:
            run.advance()
        for group, step in self.groups:
            t, numbers = zip(*(run.take() for run in group), strict=True)
            codes = step([run.codes for run in group], torch.cat(t), numbers)
            for run, after in zip(group, codes, strict=True):
                run.accept(after)

"""A run of Dia2 in the running batch, and settings of its sampling."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tts_core.dia2.config import Dia2Config
from tts_core.dia2.run import ArrivingEntries, Dia2Run
from tts_core.nn.noise import Noise
from tts_core.nn.sampling import Sampler
from tts_core.speaking.rows import BatchText, TextInputs

COLDEST = 1e-6  # the lowest temperature that is not greedy


@dataclass(frozen=True)
class Dia2Choice:
    """Settings of the choice of an id. Guidance only picks candidates; the conditional logits are sampled.

    cfg_scale: 1 turns guidance off.
    cfg_filter_k: candidates by guided logits; 0 keeps all.
    temperature: 0 takes the likeliest candidate.
    top_k: then by probability; 0 keeps all.
    """

    cfg_scale: float
    cfg_filter_k: int
    temperature: float
    top_k: int

    @property
    def is_guided(self) -> bool:
        """True if the unconditional logits matter."""
        return self.cfg_scale != 1 and self.cfg_filter_k > 0

    @property
    def is_greedy(self) -> bool:
        """True if no random number is used."""
        return self.temperature <= 0

    @property
    def numbers(self) -> Dia2Numbers:
        """The numbers by which a sampler draws."""
        from_conditional = abs(self.cfg_scale) >= 0.5
        return Dia2Numbers(
            cfg_filter_k=self.cfg_filter_k if self.is_guided else 0,
            from_conditional=from_conditional,
            factor=self.cfg_scale - 1 if from_conditional else self.cfg_scale,
            temperature=0 if self.is_greedy else max(self.temperature, COLDEST),
            first_top_k=self.top_k,
        )


@dataclass(frozen=True)
class Dia2Numbers:
    """A choice as its sampler draws. from_conditional: guidance starts from the conditional logits."""

    cfg_filter_k: int
    from_conditional: bool
    factor: float
    temperature: float
    first_top_k: int


LAST = "cfg_filter_k", "temperature", "first_top_k"
SAMPLER = Sampler(Dia2Numbers, ("nearer_guidance", *LAST))
FIRST_STREAM = Sampler(Dia2Numbers, ("nearer_guidance", "allowed_ids", *LAST))


def allowed_ids(vocabulary: int, forbidden: tuple[int, ...]) -> np.ndarray:
    """Return which ids the first stream may draw: all but padding and begin. → (V,) bool."""
    return ~np.isin(np.arange(vocabulary), forbidden)


@dataclass(frozen=True)
class Dia2Sampling:
    """The choices of a run: of every step's action, and of its codes."""

    action: Dia2Choice
    audio: Dia2Choice

    @cached_property
    def numbers(self) -> tuple[Dia2Numbers, Dia2Numbers]:
        """The numbers by which samplers draw actions and codes."""
        return self.action.numbers, self.audio.numbers

    @property
    def is_guided(self) -> bool:
        """True if unconditional rows are needed."""
        return self.action.is_guided or self.audio.is_guided

    @property
    def is_greedy(self) -> bool:
        """True if no random number is used."""
        return self.action.is_greedy and self.audio.is_greedy


@dataclass(eq=False)
class Dia2Inputs(TextInputs):
    """A run, and the text that comes while it is spoken; None for one that was given whole.

    noise: of step n, in the shape of `noise_shape`.
    before: (P, 2 + Q) int32, inputs of the prefix's steps, at positions 0 .. P-1, once its words have come.
    error: of the host's part of a step.
    """

    run: Dia2Run
    text: ArrivingEntries | None
    sampling: Dia2Sampling
    noise: Noise
    before: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int32))
    error: Exception | None = None

    @property
    def rows(self) -> int:
        """Rows of the network: the conditional one and, with guidance, the unconditional one."""
        return 1 + self.sampling.is_guided

    @property
    def positions(self) -> int:
        """Steps that are read before the first one."""
        return len(self.before)

    def feed(self, text: str | None) -> None:
        """Take text that has come; None is its end. Raises UsageError for text that cannot be read."""
        if self.text is not None:
            self.text.feed(text)
        self.supply()

    def supply(self) -> None:
        """Give the run the words that its next step may need."""
        if self.text is not None:
            self.text.supply(self.run)

    def waits(self, text: BatchText) -> bool:
        """Return True if no step is left, or one whose words have not come."""
        return self.error is not None or not self.run.has_step or self.run.waits

    def given(self, text: BatchText) -> np.ndarray:
        """Return the position of the next step, and its inputs, (3 + Q,) int32. A prefix's last step is run
        again, after itself, at its own position.
        """
        return np.append(np.int32(self.run.step), self.run.tokens())

    def answer(self, action: int) -> tuple[int, int]:
        """Take a step's action; returns the new ids of both text streams."""
        texts = self.run.act(action)
        self.supply()
        return texts

    def uniform(self, step: int, shape: tuple[int, ...]) -> np.ndarray:
        """Return the numbers of a step; 0.5 if none is used."""
        return np.full(shape, 0.5, np.float32) if self.sampling.is_greedy else self.noise.uniform(step, shape)


def noise_shape(config: Dia2Config) -> tuple[int, int]:
    """Shape of a step's numbers: for the action, then for each stream, of which the first ids' are used."""
    return 1 + config.n_streams, max(config.audio_vocab_size, config.action_vocab_size)

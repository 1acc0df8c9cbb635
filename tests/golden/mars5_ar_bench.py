"""MARS5's autoregressive network on both sides, NumPy in and out, from its published files."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from converters.part import ModelPart
from tests.golden.bench import built, part_of
from tests.golden.exact import exact_rotary
from tests.sides import Side
from tests.tiny.mars5_draws import extend, probabilities
from tests.tiny.networks import Weights
from tts_core.mars5.inputs import CodecSequence
from tts_core.mars5.options import Mars5Options
from tts_core.mars5.tokens import SPEECH_FILE, TEXT_FILE, CodecPrompt, CodecVocabulary
from tts_core.nn.noise import Noise


def ar_part(folder: Path, name: str) -> ModelPart:
    return part_of("mars5", folder / f"{name}.safetensors")


@cache
def read_vocabulary(folder: Path, name: str) -> CodecVocabulary:
    part = ar_part(folder, name)
    texts = (part.documents[file] for file in (TEXT_FILE, SPEECH_FILE))
    return CodecVocabulary.read(*texts, vocab_size=part.config.vocab_size)


@dataclass
class Recorder:
    """Replacement for the draw of an id: keeps the distributions and can force an id."""

    side: ArSide
    forced: dict[int, int] = field(default_factory=dict)  # draw → id
    probs: list[np.ndarray] = field(default_factory=list)  # (V,) each

    def __call__(self, draw: Any, uniform: Any) -> Any:
        at = len(self.probs)
        self.probs.append(probabilities(self.side, draw).astype(self.side.numpy(draw.scores).dtype))
        drawn = self.side.module("sampling").inverse(draw, uniform)
        return self.side.array(np.array([self.forced[at]])) if at in self.forced else drawn


@dataclass(frozen=True, eq=False)
class ArSide(Side):
    """A side with the network; None where only the sampler is asked."""

    network: Any

    def speaker(self, codes: np.ndarray) -> np.ndarray:
        """(P, Q) → (1, D)."""
        return self.numpy(self.network.speaker(self.array(codes[None])))

    def hidden(self, codes: np.ndarray, tokens: np.ndarray) -> list[np.ndarray]:
        """Every block's output, all ids read at once. (P, Q), (1, N) → (1, N + 1, D) each."""
        with exact_rotary(self.kind):
            x, cache, rotation = self._start(codes, tokens, tokens.shape[1] + 1)
            outs = []
            for layer, rows in zip(self.network.ar.layers, cache, strict=True):
                x = layer(x, rotation, rows)
                outs.append(self.numpy(x))
            return outs

    def forward(self, codes: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Logits after every id, all read at once. (P, Q), (1, N) → (1, N, V)."""
        with exact_rotary(self.kind):
            rows, cache, rotation = self._start(codes, tokens, tokens.shape[1] + 1)
            return self.numpy(self.network(rows, rotation, cache))[:, 1:]

    def stepped(self, codes: np.ndarray, tokens: np.ndarray, prompt: int, capacity: int) -> np.ndarray:
        """Logits after the prompt's last id and each later one, read one by one. → (1, N - P + 1, V)."""
        with exact_rotary(self.kind):
            rows, cache, rotation = self._start(codes, tokens[:, :prompt], prompt + 1, capacity)
            rotary = self.network.positions(tokens.shape[1] + 1)
            logits = [self.numpy(self.network.next_logits(rows, rotation, cache))]
            for at in range(prompt, tokens.shape[1]):
                row = self.network.embed(self.array(tokens[:, at : at + 1]))
                logits.append(self.numpy(self.network.next_logits(row, rotary(at + 1, 1), cache)))
            return np.stack(logits, axis=1)

    def generate(
        self,
        codes: np.ndarray,
        prompt: CodecPrompt,
        vocabulary: CodecVocabulary,
        options: Mars5Options,
        noise: Noise,
        *,
        forced: dict[int, int],
    ) -> tuple[CodecSequence, list[np.ndarray]]:
        """The whole loop, and the distribution of every draw. codes: (P, Q)."""
        recorder = Recorder(self, forced)
        sequence = CodecSequence(prompt, vocabulary, options.max_len)
        with exact_rotary(self.kind):
            for _ in extend(self, self.network, codes.T, sequence, options, noise, choose=recorder):
                pass
        draws = len(sequence.generated) + (sequence.finish_reason == "stop")
        return sequence, recorder.probs[:draws]  # draws that were launched ahead are not read

    def _start(self, codes: np.ndarray, tokens: np.ndarray, length: int, capacity: int = 0) -> Any:
        speaker = self.network.speaker(self.array(codes[None]))
        rows = self.network.rows(speaker, self.array(tokens))
        return rows, self.network.new_cache(capacity or length), self.network.positions(length)(0, length)


@cache
def ar_side(kind: str, folder: Path, name: str, window: int | None = None) -> ArSide:
    """window: another one than the checkpoint's."""
    part = ar_part(folder, name)
    config = part.config if window is None else replace(part.config, sliding_window=window)
    weights = Weights(config, {key: part.read(key) for key in part.names()})
    return ArSide(kind, built(kind, "mars5", weights))

"""MetaVoice's language models on a side, NumPy in and out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.draws import only, score
from tests.sides import Side, Stored
from tests.tiny.metavoice import tilted
from tests.tts_core.metavoice import sampling_rules as rules
from tts_core.metavoice.config import END_OF_AUDIO
from tts_core.metavoice.inputs import SAMPLER, FirstStageSampling, MetaVoiceInputs, second_stage_rows
from tts_core.nn.noise import Noise


@dataclass(frozen=True, eq=False)
class PlainStep:
    """Texts of one sampling, column by column, without slots.

    speakers: (G·B, 1, D).  cache: of every layer.
    """

    network: Any
    speakers: Any
    cache: list[Any]
    sampling: FirstStageSampling
    end_of_text: int


@dataclass(frozen=True)
class LanguageSide(Side):
    """A side with both language models."""

    def first_stage(self, weights: Stored) -> Any:
        return self.network("metavoice", weights)

    def second_stage(self, weights: Stored) -> Any:
        return self.network("metavoice_second_stage", weights)

    def fill_codebooks_as_upstream(
        self,
        network: Any,
        text: np.ndarray,
        codes: np.ndarray,
        embedding: np.ndarray,
        noise: Noise,
        *,
        temperature: float = 1.0,
        top_k: int | None = 200,
    ) -> np.ndarray:
        """All codebooks by value, as upstream reads them: one misplaced code shifts its whole codebook."""
        code = self.module("metavoice.codes")
        rows = second_stage_rows(text, codes, network.config.max_position_embeddings)
        ids = code.draw(code.predict(network, rows, embedding), noise, temperature=temperature, top_k=top_k)
        return tilted(np.concatenate([rows, self.numpy(ids).astype(np.int32)]))[1]

    def step(
        self,
        network: Any,
        embeddings: np.ndarray,
        sampling: FirstStageSampling,
        *,
        room: int,
        end_of_text: int,
    ) -> PlainStep:
        """Texts of one sampling before their first column. embeddings: (B, E)."""
        with self.inference():
            heard = self.module("metavoice.guidance").speaker_rows(network, self.array(embeddings), sampling)
        return PlainStep(network, heard, network.new_cache(room), sampling, end_of_text)

    def rows(self, step: PlainStep, tokens: np.ndarray) -> np.ndarray:
        """A step's logits after the last of (B, T) ids. → (G, B, V)."""
        stacked = self.module("metavoice.guidance").stacked
        with self.inference():
            ids = stacked(self.array(tokens), step.sampling, step.end_of_text)
            logits = self.numpy(step.network.next_logits(ids, step.speakers, step.cache))
        return logits.reshape(step.sampling.rows, len(tokens), -1)

    def alone(self, network: Any, text: MetaVoiceInputs, *, count: int, end_of_text: int) -> list[int]:
        """The first `count` ids that a text draws, by plain steps and the rules in NumPy."""
        sampling, made = text.sampling, list[int]()
        step = self.step(
            network, text.vector[None], sampling, room=len(text.tokens) + count, end_of_text=end_of_text
        )
        while len(made) < count:
            new = np.array(made[-1:], np.int32) if made else text.tokens
            logits = self.rows(step, new[None])[:, 0]
            guided = rules.guide(list(logits), sampling.cfg_scale, sampling.text_cfg_scale)
            rule = rules.probabilities_fast if sampling.rule == "fast" else rules.probabilities_slow
            probs = rule(guided, sampling.temperature, sampling.top_p, sampling.top_k)
            waiting = rules.waiting_times(text.noise, len(made), probs.shape)
            made.append(int(probs.argmax() if sampling.greedy else rules.race(probs, waiting)))
        return made

    def speak(
        self,
        network: Any,
        texts: Sequence[MetaVoiceInputs],
        limits: Sequence[int],
        *,
        end_of_text: int,
        end: int = END_OF_AUDIO,
    ) -> list[np.ndarray]:
        """Prompt and new ids of texts that share the slots from the start, (N,) int32 each.

        limits: most new ids of each.  end: the id that ends a text, and is its last.
        """
        slots = self.module("metavoice.decoder").make_slots(
            network,
            texts=len(texts),
            capacity=network.config.max_position_embeddings - 1,
            end_of_text=end_of_text,
        )
        for slot, text in enumerate(texts):
            slots.join({slot: text})
        made: list[list[int]] = [[] for _ in texts]
        running = [*range(len(texts))]
        while running:
            [drawn] = slots.read(slots.launch(1))
            for slot in [*running]:
                made[slot].append(int(drawn[slot]))
                if drawn[slot] == end or len(made[slot]) == limits[slot]:
                    slots.leave(slot)
                    running.remove(slot)
        return [
            np.concatenate([text.tokens, np.array(new, np.int32)])
            for text, new in zip(texts, made, strict=True)
        ]

    def guided(self, rows: Sequence[np.ndarray], sampling: FirstStageSampling) -> np.ndarray:
        """(G, B, V) → (B, V)."""
        return score(self, only(SAMPLER, "three_way_guidance"), rows, sampling.numbers)

    def probabilities(self, logits: np.ndarray, sampling: FirstStageSampling) -> np.ndarray:
        """Probabilities of guided logits. (B, V) → same."""
        return rules.softmax(score(self, SAMPLER, [logits], sampling.numbers))

    def predict(self, network: Any, rows: np.ndarray, embeddings: np.ndarray | None) -> np.ndarray:
        """The second stage's logits. (B, 2, W), (B, E) → (B, Q, W, V)."""
        speakers = None if embeddings is None else self.array(embeddings)
        with self.inference():
            return self.numpy(network(self.array(rows), speakers))

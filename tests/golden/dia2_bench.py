"""Dia2 on both sides, NumPy in and out: published files through our map, planned strictly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np

from tests.golden.bench import Bench, built, network
from tests.golden.cases import Case
from tests.golden.codec_bench import CodecSide, codec_bench
from tests.sides import Side, Stored
from tts_core.dia2.config import Dia2Config
from tts_core.dia2.inputs import Dia2Inputs, Dia2Sampling
from tts_core.dia2.run import Dia2Run
from tts_core.dia2.script import Reader
from tts_core.dia2.tokenizer import FILE, Dia2Tokenizer
from tts_core.nn.noise import HostNoise


@dataclass
class Ran:
    """What one run did. actions: the network's.  main, second: the machine's answers.  cache: of layer 0,
    after the prefix.
    """

    run: Dia2Run
    actions: list[int] = field(default_factory=list)
    main: list[int] = field(default_factory=list)
    second: list[int] = field(default_factory=list)
    cache: tuple[np.ndarray, np.ndarray] | None = None


@dataclass(eq=False)
class Noted(Dia2Inputs):
    """A run whose actions and answers are noted."""

    ran: Ran = field(kw_only=True)

    def answer(self, action: int) -> tuple[int, int]:
        main, second = super().answer(action)
        self.ran.actions.append(action)
        self.ran.main.append(main)
        self.ran.second.append(second)
        return main, second


@dataclass(frozen=True)
class Dia2Side(Side):
    """A side with a Dia2."""

    network: Any  # pyright: ignore[reportIncompatibleMethodOverride]

    def teacher_forced(self, tokens: np.ndarray) -> dict[str, np.ndarray]:
        """Run the transformer over all steps at once. (R, streams, T) → arrays by their golden names."""
        transformer, made = self.network.transformer, {}
        with self.inference():
            cache, read = transformer.new_cache(), self.array(np.ascontiguousarray(tokens.swapaxes(1, 2)))
            x, rotation = transformer.embed(read), transformer.rotary(0, tokens.shape[2])
            made["embed"] = x
            for i, layer in enumerate(transformer.layers):
                x = layer(x, rotation, cache[i])
                made[f"layer.{i}"] = x
                made[f"k.{i}"], made[f"v.{i}"] = (part[:, :, : tokens.shape[2]] for part in cache[i].buffers)
            made["hidden"] = hidden = transformer.norm(x)
            made["action_logits"] = transformer.actions(hidden)
            made["cb0_logits"] = transformer.codes(hidden)
        return {name: self.numpy(self._wide(value)) for name, value in made.items()}

    def stages(
        self, hidden: np.ndarray, inputs: np.ndarray, text: Sequence[np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Run the depformer after every step. (R, T, D), (R, stages, T), (R, T) twice → arrays by name."""
        depformer, made, (rows, steps) = self.network.depformer, {}, hidden.shape[:2]
        compute = self.network.transformer.compute

        def each(x: Any) -> np.ndarray:
            return self.numpy(self._wide(x)).reshape(rows, steps, -1)

        with self.inference():
            cache, flat = depformer.new_cache(), self.array(hidden.reshape(rows * steps, -1))
            if compute is not None:
                flat = flat.astype(compute) if self.kind == "mlx" else flat.to(compute)
            ids = [self.array(np.ascontiguousarray(each.reshape(-1))) for each in text]
            for stage in range(len(depformer.stage_sets)):
                previous = self.array(np.ascontiguousarray(inputs[:, stage].reshape(-1)))
                x = depformer.embed(stage, flat, previous, (ids[0], ids[1]))
                rotation = None if depformer.rotary is None else depformer.rotary(stage, 1)
                for i, layer in enumerate(depformer.layers):
                    x = layer(x, depformer.stage_sets[stage], rotation, cache[i])
                    made[f"stage.{stage}.layer.{i}"] = each(x)
                made[f"stage.{stage}.logits"] = each(depformer.head(stage, depformer.norm(x)))
            for name, part in zip(("dep_k.0", "dep_v.0"), cache[0].buffers, strict=True):
                held = self.numpy(self._wide(part))
                made[name] = held.reshape(rows, steps, *held.shape[1:])[:, -1]
        return made

    def speak(self, run: Dia2Run, sampling: Dia2Sampling, picks: Iterator[int] | None = None) -> Ran:
        """Run to the end. picks: ids drawn by the original, in order; None is greedy."""
        batch, made, warm = self.batch(1), Ran(run), run.warm_up()
        batch.join({0: Noted(run, None, sampling, HostNoise(0), warm, ran=made)})
        if len(warm):
            cache = batch.caches[0]
            keys, values = (self.numpy(part)[:, :, : len(warm)] for part in (cache.keys, cache.values))
            made.cache = keys, values
        with self._picking(picks):
            while not run.is_done:
                run.accept(batch.read(batch.launch(1))[0, 0])
        return made

    def batch(self, texts: int) -> Any:
        """A running batch on a CPU."""
        room = 4 * self.network.config.max_context_steps
        return self.module("dia2.decoder").make_slots(self.network, texts=texts, capacity=room)

    @contextmanager
    def _picking(self, picks: Iterator[int] | None) -> Iterator[None]:
        """Take the given ids instead of choosing, and note the candidates in `drawn`."""
        if picks is None:
            yield
            return
        draws = self.module("steps.dia2.drawing" if self.kind == "mlx" else "dia2.decoder")
        sampling = self.module("sampling")

        def choose(logits: Any, table: Any, uniform: Any, sampler: Any, **inputs: Any) -> Any:
            drawn.append(self.numpy(sampling.score_rows(logits, table, sampler, **inputs).scores)[0])
            return self.array(np.array([next(picks)]))

        drawn.clear()
        with mock.patch.object(draws, "draw_rows", choose):
            yield

    def _wide(self, x: Any) -> Any:
        """bfloat16 as float32."""
        if self.kind == "mlx":
            import mlx.core as mx

            return x.astype(mx.float32)
        import torch

        return x if x.dtype == torch.float64 else x.float()


drawn: list[np.ndarray] = []  # candidates of the last replayed run, (V,) each


def build(kind: str, weights: Stored) -> Dia2Side:
    """A side with a network of these weights."""
    return Dia2Side(kind, built(kind, "dia2", weights))


def dia2_bench(side: str, case: Case) -> Bench[Dia2Side]:
    """case: a folder whose info.json names configuration, weights and tokenizer."""
    info = case.info
    files = [case.path(info[key]).resolve() for key in ("weights", "config", "tokenizer")]
    return Bench.load(side, lambda kind: Dia2Side(kind, network(kind, "dia2", *files)))


def codec_of(side: str, case: Case) -> Bench[CodecSide]:
    """The codec that a case names."""
    return codec_bench(side, "mimi", case.path(case.info["mimi"]) / "model.safetensors")


def reader_of(case: Case, config: Dia2Config) -> Reader:
    """The reading of scripts with the case's tokenizer."""
    tokenizer = Dia2Tokenizer((case.path(case.info["tokenizer"]) / FILE).read_text("utf-8"))
    return Reader.of(tokenizer, config.text_new_word_id, case.info["frame_rate"])

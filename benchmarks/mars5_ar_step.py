"""Measure milliseconds per id of MARS5's autoregressive network.

    python benchmarks/mars5_ar_step.py [--size full|tiny] [--side torch,mlx] [--dtype bfloat16,float16]
        [--bits 8,4] [--draws 160] [--rounds 3]

`full` is the published shape with random weights and a vocabulary of guessed size; `tiny` runs anywhere. The
time is the difference of two lengths, so that the prompt, the first step and any capture or compilation
cancel out; the column `start` reports these. Real time is 13.3 ms a frame of 75 Hz; an id is one frame or
several. All forms of a side run once and then alternate, so that a change of the machine's load affects all;
the table has the median of the rounds and their range. The form that PyTorch launches operation by operation
takes up to twenty times as long: it draws 16 ids between shorter lengths. `same` counts the leading ids of
the shorter run that equal the first row's; in half precision rounding differs.

The floor is the time to read each weight of the blocks and the output once, and the keys and values of the
middle position, at the rate of a device-to-device copy measured here.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from benchmarks.lib.random_networks import gpu, network
from benchmarks.lib.timing import arguments, copy_rate, machine
from tts_core.mars5.config import CodecLMConfig, codec_lm_parameter_shapes, is_norm
from tts_core.mars5.inputs import CodecSequence, Mars5Inputs
from tts_core.mars5.model import MARS5_AR, MARS5_TEXT_IDS
from tts_core.mars5.options import Mars5Options
from tts_core.mars5.tokens import CodecPrompt, CodecVocabulary
from tts_core.nn.noise import HostNoise
from tts_core.speaking.running import Running
from tts_core.speaking.speech import Slot

SHORT, SLOW_SHORT, SLOW_DRAWS = 20, 6, 16
TINY = replace(
    MARS5_AR,
    vocab_size=600,
    hidden_size=128,
    intermediate_size=320,
    num_hidden_layers=2,
    num_attention_heads=2,
    speaker_layers=1,
    speaker_heads=2,
    speaker_intermediate_size=384,
)
Generate = Callable[[int], list[int]]  # number of ids → the ids
Rows = Iterator[tuple[str, Generate, bool]]  # name, form, True if it is slow


@dataclass(frozen=True)
class Job:
    """Inputs of a generation: a deep prompt and its reference, of usual lengths."""

    config: CodecLMConfig
    first_speech: int
    options: Mars5Options

    def sequence(self, draws: int) -> CodecSequence:
        ids = np.random.default_rng(1)
        text = ids.integers(0, self.first_speech, self.text_ids)
        speech = ids.integers(self.first_speech, self.config.vocab_size - 1, self.speech_ids)
        tokens = np.concatenate([text, speech]).astype(np.int32)
        vocabulary = SimpleNamespace(lowest=self.first_speech - 1, end=self.config.vocab_size - 1)
        prompt = CodecPrompt(tokens, len(text), 100, len(text) + 1)
        return CodecSequence(prompt, cast(CodecVocabulary, vocabulary), len(tokens) + draws)

    @property
    def text_ids(self) -> int:
        return 60 if self.config is MARS5_AR else 10

    @property
    def speech_ids(self) -> int:
        return 240 if self.config is MARS5_AR else 20

    def reference(self) -> np.ndarray:
        """Codes of six seconds, (Q, P)."""
        codes = np.random.default_rng(2).integers(0, 1024, (self.config.n_codebooks, 450))
        return codes[:, : 450 if self.config is MARS5_AR else 30]


def law(name: str, shape: tuple[int, ...]) -> tuple[float, float]:
    if is_norm(name):
        return 0 if name.endswith("bias") else 1, 0.1
    if len(shape) == 1:
        return 0, 1
    return 0, (2 if name == "ar.output.weight" else 1) * (0.5 if "emb" in name else shape[-1] ** -0.5)


def silent_end(name: str, value: Any) -> None:
    """Make the end improbable."""
    if name == "ar.output.weight":
        value[-1] = 0


def run(form: Any, network: Any, job: Job) -> Generate:
    """Bind a form of the port's slots to a network and a job."""

    def generate(draws: int) -> list[int]:
        sequence = job.sequence(draws)
        options = replace(job.options, generate_max_len_override=sequence.max_len)
        ids = {"lowest": sequence.vocabulary.lowest, "end": sequence.vocabulary.end}
        running = Running(form(network, texts=1, capacity=sequence.max_len, **ids), 1)
        running.join([Slot(Mars5Inputs(sequence.prompt, job.reference(), options, HostNoise(7)))])
        while not sequence.done:
            for _, drawn in running.advance():
                for draw in drawn[: draws - len(sequence.generated)].tolist():
                    sequence.accept(draw)
        return sequence.generated

    return generate


def torch_rows(job: Job, dtype: str) -> Rows:
    import torch

    from torch_ref.cuda.mars5 import decoder, rows
    from torch_ref.mars5.decoder import make_slots

    torch.backends.cuda.matmul.allow_tf32 = False
    built = network("torch", "mars5", job.config, dtype, device=gpu(), law=law, edit=silent_end)
    if rows.runs(built):
        yield "torch_ref, captured (default)", run(decoder.make_slots, built, job), False
    yield "torch_ref, launched from Python", run(make_slots, built, job), True


def mlx_rows(job: Job, dtype: str, bits: list[int]) -> Rows:
    import mlx.core as mx
    from mlx import nn

    from mlx_port.mars5 import decoder

    for width in (None, *bits):
        built = network("mlx", "mars5", job.config, dtype, law=law, edit=silent_end)
        if width is not None:
            chosen = lambda path, layer: isinstance(layer, nn.Linear) and path.startswith("ar.")  # noqa: E731
            nn.quantize(built, group_size=64, bits=width, class_predicate=chosen)
            mx.eval(built.parameters())
        yield (
            f"mlx_port{'' if width is None else f', {width} bit'}",
            run(decoder.make_slots, built, job),
            False,
        )


class Form:
    """One form of generation, timed at two lengths."""

    def __init__(self, name: str, generate: Generate, short: int, draws: int):
        """Run it once: `start` includes compilation and capture, `ids` are the ids drawn."""
        self.name, self.generate, self.short, self.draws = name, generate, short, draws
        self.steps: list[float] = []
        self.start, self.ids = self._run(short)

    def time(self) -> None:
        """Time one more round."""
        (short, _), (long, _) = self._run(self.short), self._run(self.short + self.draws)
        self.steps.append(1000 * (long - short) / self.draws)

    def _run(self, count: int) -> tuple[float, list[int]]:
        started = time.perf_counter()
        made = self.generate(count)
        took = time.perf_counter() - started
        if len(made) != count:
            raise SystemExit(f"a run ended early, after {len(made)} of {count} ids")
        return took, made

    def row(self, first: list[int]) -> str:
        """Format a row of the table. first: ids of the first row."""
        step, span = statistics.median(self.steps), f"{min(self.steps):.2f} to {max(self.steps):.2f}"
        start = max(0.0, self.start - self.short * step / 1000)
        return f"{self.name:<42} {step:>8.3f} {span:>16} {start:>8.2f} {same(self.ids, first):>7}"


def same(ids: list[int], first: list[int]) -> str:
    """Count the leading ids that are equal, out of those in both."""
    pairs = list(zip(ids, first, strict=False))
    count = next((at for at, (a, b) in enumerate(pairs) if a != b), len(pairs))
    return f"{count}/{len(pairs)}"


def bytes_per_id(job: Job, item: float, position: int, cache_item: int) -> float:
    """Bytes read per id: the blocks and the output once, and the keys and values so far."""
    shapes = codec_lm_parameter_shapes(job.config)
    weights = sum(
        np.prod(shape) for name, shape in shapes.items() if name.startswith("ar.") and not is_norm(name)
    )
    return weights * item + 2 * job.config.num_hidden_layers * job.config.hidden_size * position * cache_item


def table(title: str, rows: Rows, draws: int, rounds: int) -> None:
    print(f"\n{title}", flush=True)
    forms: list[Form] = []
    for name, generate, slow in rows:
        forms.append(Form(name, generate, *((SLOW_SHORT, SLOW_DRAWS) if slow else (SHORT, draws))))
        print(f"  warmed up: {name}, {forms[-1].start:.1f} s", flush=True)
    for index in range(rounds):
        for form in forms:
            form.time()
        times = ", ".join(f"{form.name} {form.steps[-1]:.2f}" for form in forms)
        print(f"  round {index + 1}: {times}", flush=True)
    print(f"{'':<42} {'ms/id':>8} {'range':>16} {'start s':>8} {'same':>7}")
    for form in forms:
        print(form.row(forms[0].ids), flush=True)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--size", choices=("full", "tiny"), default="tiny")
    parser.add_argument("--side", default="torch,mlx")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--bits", default="8,4", help="bits of mlx_port's quantized runs; 0 for none")
    parser.add_argument("--draws", type=int, default=160, help="ids between the two lengths")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    full = args.size == "full"
    job = Job(MARS5_AR, MARS5_TEXT_IDS, Mars5Options()) if full else Job(TINY, 100, Mars5Options(top_p=0.9))
    bits = [int(width) for width in args.bits.split(",") if width != "0"]
    print(machine(*args.side.split(",")))
    prompt = len(job.sequence(0).prompt.tokens)
    print(
        f"CodecLM {args.size}, prompt of {prompt} ids, reference of {job.reference().shape[1]} frames, ids "
        f"{SHORT} to {SHORT + args.draws}, median of {args.rounds} rounds"
    )
    on_gpu = "torch" in args.side and gpu() == "cuda"
    rate, middle = copy_rate("torch") if on_gpu else 0.0, prompt + SHORT + args.draws // 2
    for label, item in (("16 bit", 2), ("8 bit", 1 + 4 / 64), ("4 bit", 0.5 + 4 / 64)):
        amount = bytes_per_id(job, item, middle, 2)
        floor = f", {1000 * amount / rate:.3f} ms at {rate / 1e12:.2f} TB/s" if rate else ""
        print(f"floor, {label}: {amount / 1e9:.3f} GB per id{floor}")
    for side in args.side.split(","):
        for dtype in args.dtype.split(","):
            rows = torch_rows(job, dtype) if side == "torch" else mlx_rows(job, dtype, bits)
            table(f"{side}, {dtype}", rows, args.draws, args.rounds)


if __name__ == "__main__":
    main()

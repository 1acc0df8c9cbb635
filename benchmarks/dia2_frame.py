"""Measure milliseconds per frame of Dia2, and seconds to the first sound: both sides, and the original.

    python benchmarks/dia2_frame.py [--size 2b|1b|tiny] [--side torch,mlx,nari,nari-graphs]
        [--dtype bfloat16] [--texts 1,8] [--frames 40,140] [--guidance 2] [--runs 3] [--nari FOLDER]

Weights are random at the published shape; `tiny` runs anywhere. A frame is a step of the transformer, its
action, and a code of every stream, for all texts together; random numbers, the state machine and the reads of
a session are included, the codec is not. The time is the difference of two lengths, so that captures and
compilations cancel out; `start` reports these, in seconds. `sound` is the time from the first three words to
the first sound, codec included, in a process that has spoken; further words follow as they are asked for.
Real time is 80 ms a frame.

nari is nari-labs/dia2 from a folder, eager or with its CUDA graphs: one text, float32 weights with TF32 and
bfloat16 arithmetic.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.lib.checkpoints import dia2_config
from benchmarks.lib.dia2_networks import SIZES, engine
from benchmarks.lib.timing import arguments, machine, step
from tts_core.dia2.config import Dia2Config
from tts_core.dia2.inputs import Dia2Inputs
from tts_core.dia2.options import Dia2Options
from tts_core.dia2.request import choose_sampling
from tts_core.dia2.run import Dia2Run
from tts_core.dia2.script import Entry
from tts_core.nn.noise import HostNoise

WORDS = [Entry((40 + n % 90, 41 + n % 80), "word", 2) for n in range(600)]  # more than any run speaks
THREE = "[S1] Hello there my "
MORE = ["friend, ", *["it goes on. "] * 20]
Frames = Callable[[int, int], None]  # texts, frames
Sound = Callable[[], float]  # seconds


def frames_of(built: Any, config: Dia2Config, guidance: float) -> Frames:
    """Run frames as a session does: a step acts before the codes of the last one are read."""
    sampling = choose_sampling(Dia2Options(cfg_scale=guidance))

    def frames(texts: int, count: int) -> None:
        batch = built.slots(texts, count + config.longest_delay, guided=sampling.is_guided)
        runs = [Dia2Run(config, WORDS, max_frames=count) for _ in range(texts)]
        for slot, run in enumerate(runs):
            batch.join({slot: Dia2Inputs(run, None, sampling, HostNoise(slot), run.warm_up())})
        drawn = None
        while batch.can_step:
            before, drawn = drawn, batch.launch(1)
            if before is not None:
                accept(runs, batch.read(before)[0])
        accept(runs, batch.read(drawn)[0])
        assert all(run.frames == count for run in runs)

    return frames


def accept(runs: list[Dia2Run], codes: np.ndarray) -> None:
    for slot, run in enumerate(runs):
        run.accept(codes[slot])


def sound_of(side: str, built: Any, guidance: float) -> Sound:
    package = "mlx_port" if side == "mlx" else "torch_ref"
    pipeline = import_module(f"{package}.dia2.pipeline").Dia2Pipeline(built)

    def sound() -> float:
        came = [0.0]

        def words() -> Iterator[str]:
            came[0] = time.perf_counter()
            yield THREE
            yield from MORE

        for part in pipeline.stream(words(), seed=1, max_frames=30, cfg_scale=guidance):
            if part.samples:
                return time.perf_counter() - came[0]
        raise SystemExit("no sound")

    return sound


def nari(config: Dia2Config, guidance: float, folder: str, *, graphs: bool) -> tuple[Frames, str]:
    """The original's own loop on random weights; what it imports for downloads and recordings is left out."""
    import torch

    sys.path.insert(0, folder)
    sys.modules.update({name: mock.MagicMock() for name in ("transformers", "huggingface_hub", "sphn")})
    context, loop = (import_module(f"dia2.runtime.{name}") for name in ("context", "generator"))
    state, settings = import_module("dia2.runtime.state_machine"), import_module("dia2.generation")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    precision = import_module("dia2.core.precision").resolve_precision("bfloat16", device)
    with tempfile.TemporaryDirectory() as index:
        path = Path(index) / "config.json"
        path.write_text(json.dumps(dia2_config(config)))
        sizes = import_module("dia2.config").load_config(path)
    torch.manual_seed(0)
    model = import_module("dia2.core.model").Dia2Model(sizes, precision, device=device).eval()
    ids = state.TokenIds(
        card=config.text_vocab_size,
        new_word=config.text_new_word_id,
        pad=config.text_pad_id,
        bos=config.text_bos_id,
        zero=config.text_zero_id,
        spk1=config.text_new_word_id,
        spk2=config.text_new_word_id,
        audio_pad=config.audio_pad_id,
        audio_bos=config.audio_bos_id,
    )
    machine = state.StateMachine(
        token_ids=ids, second_stream_ahead=config.second_stream_ahead, initial_padding=2
    )
    options = settings.GenerationConfig(cfg_scale=guidance, use_cuda_graph=graphs)

    def run(count: int, options: Any) -> None:
        runtime = context.RuntimeContext(
            config=replace(sizes, runtime=replace(sizes.runtime, max_context_steps=count)),
            model=model,
            precision=precision,
            tokenizer=None,
            mimi=None,
            device=device,
            machine=machine,
            transformer_step=model.transformer.forward_step,
            depformer_step=model.depformer.forward_step,
            constants=ids,
            audio_delays=list(config.delay_pattern),
            audio_delay_tensor=torch.tensor(config.delay_pattern, device=device),
            frame_rate=12.5,
        )
        spoken = machine.new_state(
            [state.Entry(list(word.tokens), word.text, word.padding) for word in WORDS]
        )
        generation = loop.build_initial_state(runtime)
        _, codes = loop.run_generation_loop(runtime, state=spoken, generation=generation, config=options)
        assert int(codes.shape[-1]) == count + 1  # waits for the device

    def frames(texts: int, count: int) -> None:
        assert texts == 1, "the original speaks one text at a time"
        run(count, options)

    if graphs:  # the first step with graphs draws from logits that it did not compute: these leave some there
        run(3, replace(options, use_cuda_graph=False))
    form = "its CUDA graphs" if graphs else "eager"
    return frames, f"nari-labs/dia2 {form}, torch {torch.__version__}"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--size", choices=tuple(SIZES), default="tiny")
    parser.add_argument("--side", default="torch,mlx")
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--texts", default="1,8")
    parser.add_argument("--frames", default="40,140")
    parser.add_argument("--guidance", type=float, default=2.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--nari", metavar="FOLDER")
    args = parser.parse_args()
    config, counts = SIZES[args.size], [int(text) for text in args.texts.split(",")]
    short, long = map(int, args.frames.split(","))
    print(machine())
    print(
        f"Dia2 {args.size}, {args.dtype}, guidance {args.guidance:g}, frames {short} to {long}, "
        f"median of {args.runs} runs"
    )
    print(f"{'side':<52} {'texts':>5} {'ms/frame':>9} {'start s':>8} {'sound s':>8}")
    for side in args.side.split(","):
        if side.startswith("nari"):
            if args.nari is None:
                raise SystemExit("nari: name its folder with --nari")
            frames, name = nari(config, args.guidance, args.nari, graphs=side == "nari-graphs")
            sound = None
        else:
            built, name = engine(side, config, args.dtype)
            frames, sound = frames_of(built, config, args.guidance), sound_of(side, built, args.guidance)
        for texts in counts if sound else [1]:
            frame, start, _ = step(partial(frames, texts), (short, long), args.runs)
            heard = ""
            if sound and texts == 1:
                heard = f"{statistics.median([sound() for _ in range(1 + args.runs)][1:]):.3f}"
            print(f"{name:<52} {texts:>5} {frame:>9.3f} {start:>8.2f} {heard:>8}", flush=True)


if __name__ == "__main__":
    main()

"""Measure what the codec's precision on CUDA costs the embedded voice: signal to noise, then judges.

    python benchmarks/codec_precision.py FOLDER [--few N] [--judge] [--workers 2]

Without --judge, on an NVIDIA GPU: the evaluation's 100 sentences in both voices are spoken in float32, each
with its own seed, and their codes decoded in float64 and in every precision. Prints the SNR of each against
float64, in dB over all samples, and writes the sounds as FOLDER/<precision>.npz.

With --judge, anywhere: judges hear these files. The first table has means with 95 % intervals over sentences,
the second the differences from float32 over pairs. Needs `mlx-port judge --install`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np

from benchmarks.lib.timing import arguments
from tts_core.judges.sentences import sentences

FIGURES = ("wer", "mos", "dnsmos_overall")
YARDSTICK = "float32"
BATCH = 50  # texts at a time


def texts(few: int | None) -> list[str]:
    """List the sentences, in both voices."""
    words = sentences()[:few]
    return [f"[S{tag}] {sentence}" for tag in (1, 2) for sentence in words]


def decoded(codec: Any, codes: list[np.ndarray]) -> list[np.ndarray]:
    """Decode each sentence by itself."""
    return [codec.decode(one[None])[0].double().cpu().numpy() for one in codes]


def speak(folder: Path, few: int | None) -> None:
    import torch

    from torch_ref.dia.pipeline import DiaPipeline
    from torch_ref.limits.precision import Precision
    from tts_core.voice.embedded import CODEC, DIA

    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}", flush=True)
    pipeline = DiaPipeline.load(DIA, codec=CODEC, dtype="float32", device="cuda")
    said, codes = texts(few), list[np.ndarray]()
    for begin in range(0, len(said), BATCH):
        batch = said[begin : begin + BATCH]
        codes += pipeline.generate_codes(batch, seed=list(range(begin, begin + len(batch))))
    codec: Any = pipeline.engine.codec
    exact = decoded(copy.deepcopy(codec).double(), codes)
    power = sum(float((one**2).sum()) for one in exact)
    folder.mkdir(parents=True, exist_ok=True)
    for precision in get_args(Precision):
        codec.precision = precision
        sounds = decoded(codec, codes)
        noise = sum(float(((one - wanted) ** 2).sum()) for one, wanted in zip(sounds, exact, strict=True))
        print(f"{precision}: SNR {10 * np.log10(power / noise):.1f} dB, {len(said)} sentences", flush=True)
        cuts = np.cumsum([len(one) for one in sounds])
        samples = np.round(np.concatenate(sounds) * 32767).astype("<i2")
        np.savez_compressed(folder / f"{precision}.npz", samples=samples, cuts=cuts)


def sounds_of(path: Path) -> Iterator[np.ndarray]:
    """Yield the sentences of a file, (L,) float32."""
    with np.load(path) as found:
        samples, cuts = found["samples"], found["cuts"]
    for start, stop in zip([0, *cuts[:-1]], cuts, strict=True):
        yield samples[start:stop].astype(np.float32) / 32767


def judge(folder: Path, few: int | None, workers: int) -> None:
    from benchmarks import voice_judged
    from examples.train_voice.evaluation import Item
    from tts_core.judges.judging import judges_of
    from tts_core.judges.process import JudgeProcesses

    voice_judged.FIGURES = FIGURES
    judges_of(FIGURES)  # what is missing is said here
    said, found = [Item("slt", text) for text in texts(few)], dict[str, list[dict[str, float]]]()
    head = "| " + " | ".join(["", *FIGURES]) + " |\n" + "|---" * (len(FIGURES) + 1) + "|"
    print(f"{len(said)} sentences\n\n{head}", flush=True)
    with closing(JudgeProcesses(partial(judges_of, FIGURES), workers)) as judges:
        for path in sorted(folder.glob("*.npz"), key=lambda path: path.stem != YARDSTICK):
            found[path.stem] = voice_judged.heard(judges, said, list(sounds_of(path)), [None] * len(said))
            print(voice_judged.line(path.stem, found[path.stem]), flush=True)
    print(f"\nDifferences from {YARDSTICK}:\n\n{head}")
    for name, rows in found.items():
        if name != YARDSTICK:
            print(voice_judged.difference(name, rows, found[YARDSTICK]), flush=True)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--few", type=int, help="sentences of each voice")
    parser.add_argument("--judge", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    if given.judge:
        judge(given.folder, given.few, given.workers)
    else:
        speak(given.folder, given.few)


if __name__ == "__main__":
    main()

"""Measure the cost of quantization on MLX: code agreement and teacher-forced loss of the embedded voice.

    python benchmarks/quantised_parity.py [--texts 10] [--frames 100]

The float32 model speaks the texts, sampling at its defaults. Its codes are then forced through every form of
the model, and each prediction is compared:

    loss      mean -log p(code) in nats without guidance; its change from float32 ± standard error over texts
    argmax    share of codes whose most probable id is float32's, by channel and overall
    sampled   share of codes that the model's own rule (guidance, top-k, top-p) draws equally from the same
              random numbers
    apart     median number of frames until a free run with the same random numbers diverges
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from benchmarks.lib.timing import arguments, machine
from converters.convert import convert
from converters.published import open_published
from converters.rules.dequantize import Quantization
from mlx_port import DiaPipeline
from mlx_port.dia.dia import Dia
from mlx_port.sampling import draw_rows
from tts_core.dia.grid import apply_delay
from tts_core.dia.options import SAMPLER_0626, allowed_ids
from tts_core.dia.text import tokenize
from tts_core.nn.noise import HostNoise
from tts_core.voice.embedded import CODEC, DIA

FORMS: dict[str, dict[str, Any]] = {
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "8-bit affine": {"dtype": "float32", "quantization": Quantization.of("affine", 64, 8)},
    "mxfp8": {"dtype": "float32", "quantization": Quantization.of("mxfp8")},
    "4-bit affine": {"dtype": "float32", "quantization": Quantization.of("affine", 64, 4)},
    "mxfp4": {"dtype": "float32", "quantization": Quantization.of("mxfp4")},
    "nvfp4": {"dtype": "float32", "quantization": Quantization.of("nvfp4")},
}
TEXTS = [
    "[S1] Hello, this is a voice made by a small network.",
    "[S1] The quick brown fox jumps over the lazy dog.",
    "[S2] She sells sea shells by the sea shore.",
    "[S1] How are you today? [S2] Very well, thank you.",
    "[S1] One, two, three, four, five, six, seven.",
    "[S2] It rained all night. (sighs)",
    "[S1] Good morning. [S2] Good morning to you too.",
    "[S1] Yes! [S2] No! [S1] Maybe.",
    "[S2] Numbers such as ten or a thousand are read aloud.",
    "[S1] Where have they gone? [S2] Home. [S1]",
]


@dataclass(frozen=True)
class Forced:
    """Predictions of a form for a text's codes, each array (C, T)."""

    loss: np.ndarray  # nats
    best: np.ndarray  # ids
    drawn: np.ndarray  # ids


@dataclass(frozen=True)
class Row:
    """Row of the table."""

    form: str
    megabytes: float
    loss: float
    loss_change: float
    loss_change_error: float
    argmax: float
    argmax_by_channel: list[float]
    sampled: float
    frames_until_apart: float
    frames: float


def teacher_forced(network: Dia, text: str, codes: np.ndarray, seed: int) -> Forced:
    """Read a whole utterance in one pass and score its codes. codes: (C, T)."""
    config, frames = network.config, codes.shape[1]
    bos, eos, pad = config.bos_token_id, config.eos_token_id, config.pad_token_id
    ended = np.concatenate([codes, np.full((len(codes), 1), eos, np.int32)], axis=1)
    rows = np.concatenate(
        [np.full((len(codes), 1), bos, np.int32), apply_delay(ended, config.delay_pattern, bos, pad)], axis=1
    ).T  # (1 + T + 1 + longest delay, C)
    given = mx.array(rows[None, :-1])
    source = network.read([mx.array(tokenize(text))], network.encode_empty())
    cond, uncond = network(mx.concatenate([given, given]), network.new_cache(), source)  # (T', C, V)
    uniform = np.stack([HostNoise(seed).uniform(step, cond.shape[1:]) for step in range(len(cond))])
    known = mx.array(allowed_ids(cond.shape[1], cond.shape[2], eos))
    table = SAMPLER_0626.named(mx.array(SAMPLER_0626.table([config.sampling])), 3)
    rows = cond, uncond
    ids = draw_rows(rows, table, mx.array(uniform), SAMPLER_0626, allowed=known, end=eos)
    drawn = np.array(ids)
    # compare codes with codes only: the end of speech is another decision
    allowed = mx.where(known & (mx.arange(cond.shape[-1]) != eos), cond, -mx.inf)
    log_p = np.array(allowed - mx.logsumexp(allowed, axis=-1, keepdims=True))
    index = np.arange(frames) + np.asarray(config.delay_pattern)[:, None]  # (C, T): the row that predicts it
    channel = np.arange(len(codes))[:, None]
    return Forced(
        loss=-log_p[index, channel, codes],
        best=log_p.argmax(axis=-1)[index, channel],
        drawn=drawn[index, channel],
    )


def frames_until_apart(first: np.ndarray, two: np.ndarray) -> int:
    """Count the leading frames that two runs, (C, T) each, share."""
    shared = min(first.shape[1], two.shape[1])
    differs = np.flatnonzero((first[:, :shared] != two[:, :shared]).any(axis=0))
    return int(differs[0]) if len(differs) else shared


def compare(
    form: str,
    voice: DiaPipeline,
    size: int,
    spoken: Sequence[np.ndarray],
    reference: Sequence[Forced],
    *,
    max_frames: int,
) -> Row:
    """Compare one form with float32. spoken: float32's codes of TEXTS within max_frames."""
    texts = TEXTS[: len(spoken)]
    forced = [
        teacher_forced(voice.engine.network, text, codes, seed)
        for seed, (text, codes) in enumerate(zip(texts, spoken, strict=True))
    ]
    change = [ours.loss.mean() - theirs.loss.mean() for ours, theirs in zip(forced, reference, strict=True)]
    free = voice.generate_codes(texts, seed=list(range(len(texts))), max_frames=max_frames)
    same = pooled(forced, reference, lambda ours, theirs: ours.best == theirs.best)
    return Row(
        form=form,
        megabytes=size / 1e6,
        loss=float(np.mean([item.loss.mean() for item in forced])),
        loss_change=float(np.mean(change)),
        loss_change_error=float(np.std(change, ddof=1) / len(change) ** 0.5)
        if len(change) > 1
        else float("nan"),
        argmax=float(same.mean()),
        argmax_by_channel=[float(share) for share in same.mean(axis=1)],
        sampled=float(pooled(forced, reference, lambda ours, theirs: ours.drawn == theirs.drawn).mean()),
        frames_until_apart=float(
            np.median([frames_until_apart(first, two) for first, two in zip(spoken, free, strict=True)])
        ),
        frames=float(np.median([codes.shape[1] for codes in spoken])),
    )


def pooled(
    ours: Sequence[Forced], theirs: Sequence[Forced], compare: Callable[[Forced, Forced], np.ndarray]
) -> np.ndarray:
    """Concatenate a comparison over all texts. → (C, frames)."""
    return np.concatenate([compare(first, two) for first, two in zip(ours, theirs, strict=True)], axis=1)


def make(form: str, folder: Path) -> tuple[DiaPipeline, int]:
    """Convert the embedded voice to a form. Returns the pipeline and the bytes of the network's weights."""
    convert(open_published([DIA], codec=CODEC, offline=True), folder, **FORMS[form])
    return DiaPipeline.load(folder), sum(file.stat().st_size for file in folder.glob("model*.safetensors"))


def table(rows: Sequence[Row]) -> list[str]:
    """Format as Markdown."""
    channels = len(rows[0].argmax_by_channel)
    heads = [
        "",
        "MB",
        "loss",
        "change ± s.e.",
        "argmax",
        *[f"ch {c}" for c in range(channels)],
        "sampled",
        "apart",
    ]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for row in rows:
        cells = [
            row.form,
            f"{row.megabytes:.1f}",
            f"{row.loss:.4f}",
            f"{row.loss_change:+.5f} ± {row.loss_change_error:.5f}",
            f"{row.argmax:.2%}",
            *[f"{share:.1%}" for share in row.argmax_by_channel],
            f"{row.sampled:.2%}",
            f"{row.frames_until_apart:g} of {row.frames:g}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--texts", type=int, default=len(TEXTS))
    parser.add_argument("--frames", type=int, default=100)
    options = parser.parse_args()
    print(machine("mlx"))
    print(f"{options.texts} texts of at most {options.frames} frames, seeds 0, 1, ...\n")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        plain, size = make("float32", Path(folder) / "float32")
        texts = TEXTS[: options.texts]
        spoken = plain.generate_codes(texts, seed=list(range(len(texts))), max_frames=options.frames)
        reference = [
            teacher_forced(plain.engine.network, text, codes, seed)
            for seed, (text, codes) in enumerate(zip(texts, spoken, strict=True))
        ]
        rows.append(compare("float32", plain, size, spoken, reference, max_frames=options.frames))
        for form in list(FORMS)[1:]:
            voice, size = make(form, Path(folder) / form)
            rows.append(compare(form, voice, size, spoken, reference, max_frames=options.frames))
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()

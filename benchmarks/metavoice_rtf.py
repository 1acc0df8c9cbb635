"""Measure the real-time factor of MetaVoice in torch_ref, with Vocos and with multi-band diffusion.

    python benchmarks/metavoice_rtf.py [--size full|tiny] [--dtype bfloat16] [--decoder vocos,mbd]
    [--frames 750]

The weights are random at the published sizes; the voice is a vector. Ids above the codes are improbable, so
that nearly every pair of tokens is a frame, as with trained weights. The first run of each decoder is a
warm-up.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
from dataclasses import replace
from typing import Any

import numpy as np

from tts_core import models
from tts_core.codecs.encodec import EncodecConfig
from tts_core.codecs.mbd import (
    PUBLISHED_UNET,
    MbdBandConfig,
    MbdConfig,
    MbdProcessorConfig,
    MbdScheduleConfig,
    MbdUnetConfig,
)
from tts_core.codecs.vocos import VocosConfig
from tts_core.metavoice.config import END_OF_AUDIO
from tts_core.metavoice.spec import METAVOICE_FIRST_STAGE, METAVOICE_SECOND_STAGE, METAVOICE_SPEAKER_ENCODER
from tts_core.metavoice.text import END_OF_TEXT, PATTERN, Tokenizer

TEXT = "This is a demo of text to speech by an open model, and it goes on for about as long as one breath."
RUNS = 3
SCHEDULE = MbdScheduleConfig(
    beta_t0=1e-5, beta_t1=0.0029, beta_exp=7.5, num_steps=1000, clip=5.0, noise_scale=1.0
)


def bands(unet: MbdUnetConfig) -> MbdConfig:
    """Build four bands, the upper two with a processor."""
    processor = MbdProcessorConfig(n_bands=8, power_std=(0.4,) * 8)
    return MbdConfig(
        24000, tuple(MbdBandConfig(unet, SCHEDULE, p) for p in (None, None, processor, processor))
    )


FULL: dict[str, Any] = {
    "metavoice": METAVOICE_FIRST_STAGE,
    "metavoice_second_stage": METAVOICE_SECOND_STAGE,
    "metavoice_speaker_encoder": METAVOICE_SPEAKER_ENCODER,
    "encodec": EncodecConfig(24000, 128, 32, (8, 5, 4, 2), 7, 7, 3, 2, 2, 32, 1024),
    "vocos": VocosConfig(24000, 16, 1024, 128, 384, 1152, 8, 4, 1280, 320),
    "mbd": bands(PUBLISHED_UNET),
}
TINY: dict[str, Any] = FULL | {
    "metavoice": replace(METAVOICE_FIRST_STAGE, hidden_size=64, intermediate_size=128, num_hidden_layers=2),
    "metavoice_second_stage": replace(METAVOICE_SECOND_STAGE, num_hidden_layers=1),
    "encodec": replace(FULL["encodec"], num_filters=4),
    "vocos": replace(FULL["vocos"], dim=32, intermediate_dim=32, num_layers=1),
    "mbd": bands(replace(PUBLISHED_UNET, hidden=8, depth=2)),
}


class RandomParts:
    """Stand-in for torch_ref.loading.Parts with random weights."""

    model = "metavoice"

    def __init__(self, configs: dict[str, Any], dtype: str):
        import torch

        self.configs, self.torch = configs, torch
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.dtype = getattr(torch, dtype)
        ranks = {bytes([byte]): byte for byte in range(256)}
        tables = {"metavoice": END_OF_AUDIO + 1, "metavoice_second_stage": 1025}
        self.documents = {
            kind: {
                "tokenizer.json": json.dumps(Tokenizer(PATTERN, ranks, {END_OF_TEXT: 256}, start).to_dict())
            }
            for kind, start in tables.items()
        }

    def network(self, kind: str, cls: type[Any]) -> Any:
        made, pieces = cls, models.network(kind).pieces
        if pieces is not None:
            return made(self.configs[kind], lambda piece: self.tensors(kind, pieces.format(piece)))
        with self.torch.device("meta"):
            network = made(self.configs[kind])
        network.load_state_dict(self.tensors(kind, ""), strict=True, assign=True)
        return network.to(self.device).eval()

    def tensors(self, kind: str, prefix: str) -> dict[str, Any]:
        random = self.torch.Generator(self.device).manual_seed(len(prefix))
        shapes = models.network(kind).parameter_shapes(self.configs[kind])
        return {
            name.removeprefix(prefix): self._tensor(kind, name, shape, random)
            for name, shape in shapes.items()
            if name.startswith(prefix)
        }

    def _tensor(self, kind: str, name: str, shape: tuple[int, ...], random: Any) -> Any:
        one = len(shape) == 1
        x = self.torch.randn(shape, generator=random, device=self.device)
        x = x * 0.1 + (1 if name.endswith("weight") else 0) if one else x * np.prod(shape[1:]) ** -0.5
        if kind == "metavoice" and ".wtes." in name:
            x *= 3
            x[END_OF_AUDIO:] = 0  # the end and letters are practically never drawn
        return x.to(self.torch.float32 if models.network(kind).stays_float32(name) else self.dtype)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--size", choices=("full", "tiny"), default="tiny")
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--decoder", default="vocos,mbd")
    parser.add_argument("--frames", type=int, default=750)
    args = parser.parse_args()
    import torch

    from torch_ref.metavoice.pipeline import assemble

    parts: Any = RandomParts(FULL if args.size == "full" else TINY, args.dtype)
    pipeline = assemble(parts)
    where = torch.cuda.get_device_name() if parts.device.type == "cuda" else "cpu"
    print(f"{platform.platform()}, Python {platform.python_version()}, torch {torch.__version__}, {where}")
    print(f"MetaVoice, {args.size}, {args.dtype}, {args.frames} frames, guidance 3, median of {RUNS}")
    voice = np.abs(np.random.default_rng(0).normal(0, 1, METAVOICE_SPEAKER_ENCODER.speaker_embedding_size))
    voice = (voice / np.linalg.norm(voice)).astype(np.float32)
    for decoder in args.decoder.split(","):
        runs = [
            pipeline.generate(TEXT, prompt=voice, decoder=decoder, max_frames=args.frames, seed=seed)
            for seed in range(RUNS + 1)
        ][1:]
        rtf = statistics.median(run.real_time_factor for run in runs)
        stages = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in runs[-1].stage_seconds.items())
        print(f"{decoder:<6} RTF {rtf:.3f}: {runs[-1].audio_seconds:.1f} s of audio; {stages}", flush=True)


if __name__ == "__main__":
    main()

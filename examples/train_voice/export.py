"""Stage 7, export: write float16 weights in the layouts in which transformers publishes Dia and DAC.

    python -m examples.train_voice.export --codec work/codec.pt --dia work/dia.pt --out work/voice

--codec or --dia may be left out. `torch_ref.load("work/voice/dia", codec="work/voice/codec")` loads the
result, and convert-weights converts it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from examples.train_voice.parallel import restore
from examples.train_voice.settings import DEFAULT, read_settings
from tts_core.codecs.dac import DacConfig
from tts_core.dia.config import DiaConfig
from tts_core.text.rules import FILE as RULES
from tts_core.voice.embedded import DIA


def dac_config(config: DacConfig) -> dict[str, Any]:
    """Build config.json in the form of transformers' DacModel."""
    return {
        "architectures": ["DacModel"],
        "model_type": "dac",
        "sampling_rate": config.sample_rate,
        "encoder_hidden_size": config.encoder_hidden_size,
        "downsampling_ratios": list(config.downsampling_ratios),
        "hidden_size": config.hidden_size,
        "hop_length": config.hop_length,
        "decoder_hidden_size": config.decoder_hidden_size,
        "upsampling_ratios": list(config.upsampling_ratios),
        "n_codebooks": config.n_codebooks,
        "codebook_size": config.codebook_size,
        "codebook_dim": config.codebook_dim[0],
        "quantizer_dropout": 0.0,
        "codebook_loss_weight": 1.0,
        "commitment_loss_weight": 0.25,
        "dtype": "float16",
    }


def dia_config(config: DiaConfig) -> dict[str, Any]:
    """Build config.json in the form of transformers' DiaForConditionalGeneration."""
    ids = {name: getattr(config, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    return {
        "architectures": ["DiaForConditionalGeneration"],
        "model_type": "dia",
        "is_encoder_decoder": True,
        "delay_pattern": list(config.delay_pattern),
        "norm_eps": config.encoder_config.norm_eps,
        "encoder_config": {
            "model_type": "dia_encoder",
            "hidden_act": "silu",
            **asdict(config.encoder_config),
        },
        "decoder_config": {
            "model_type": "dia_decoder",
            "hidden_act": "silu",
            **asdict(config.decoder_config),
            **ids,
        },
        **ids,
        **({"own_speakers": list(config.own_speakers)} if config.own_speakers else {}),
        "dtype": "float16",
    }


def generation_config(config: DiaConfig) -> dict[str, Any]:
    """Build generation_config.json with the sampling defaults."""
    sampling = config.sampling
    return {
        "do_sample": True,
        "guidance_scale": sampling.cfg_scale,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "bos_token_id": config.bos_token_id,
        "eos_token_id": config.eos_token_id,
        "pad_token_id": config.pad_token_id,
    }


def write(folder: Path, weights: Mapping[str, Tensor], configs: Mapping[str, dict[str, Any]]) -> int:
    """Write one network's folder. Returns its size in bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    halves = {name: weight.detach().cpu().to(torch.float16).contiguous() for name, weight in weights.items()}
    worst = max(float(half.abs().max()) for half in halves.values())
    if not worst < 60000:
        raise SystemExit(f"export: {folder}: a weight of {worst} does not fit float16; train again")
    save_file(halves, folder / "model.safetensors", metadata={"format": "pt"})
    for name, config in configs.items():
        (folder / name).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    return sum(path.stat().st_size for path in folder.iterdir())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--settings", type=Path, default=DEFAULT)
    parser.add_argument("--codec", type=Path)
    parser.add_argument("--dia", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    settings, cpu = read_settings(given.settings), torch.device("cpu")
    if given.codec:
        state = restore(given.codec, cpu)
        if state is None:
            raise SystemExit(f"export: no codec at {given.codec}; run stage 4 first")
        size = write(given.out / "codec", state["dac"], {"config.json": dac_config(settings.codec)})
        print(f"export: codec, {size:,} bytes")
    if given.dia:
        state = restore(given.dia, cpu)
        if state is None:
            raise SystemExit(f"export: no language model at {given.dia}; run stage 6 first")
        configs = {
            "config.json": dia_config(settings.dia),
            "generation_config.json": generation_config(settings.dia),
            RULES: json.loads((DIA / RULES).read_text("utf-8")),
        }
        size = write(given.out / "dia", state["average"], configs)
        print(f"export: language model, {size:,} bytes")


if __name__ == "__main__":
    main()

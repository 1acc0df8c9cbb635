"""Small Dias as they are published, and on a side."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors.numpy import save_file

from tests.sides import Side
from tests.tiny.networks import Weights
from tts_core.codecs.dac import DacConfig
from tts_core.dia.config import DiaConfig


def write_published(folder: Path, dia: Weights[DiaConfig], dac: Weights[DacConfig]) -> Path:
    """The pair in the published transformers layout, the codec in a subfolder. Returns the folder."""
    config = {name: getattr(dia.config, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    config |= {"delay_pattern": dia.config.delay_pattern, "model_type": "dia"}
    config |= {name: asdict(getattr(dia.config, name)) for name in ("encoder_config", "decoder_config")}
    sampling = asdict(dia.config.sampling)
    sampling["guidance_scale"] = sampling.pop("cfg_scale")
    codec = asdict(dac.config) | {"model_type": "dac", "sampling_rate": dac.config.sample_rate}
    del codec["sample_rate"]
    codec["codebook_dim"] = dac.config.codebook_dim[0]
    files = {"config.json": config, "generation_config.json": sampling, "codec/config.json": codec}
    (folder / "codec").mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    save_file(dia.tensors, folder / "model.safetensors")
    save_file(dac.tensors, folder / "codec/model.safetensors")
    return folder


def compose(side: Side, dia: Weights[DiaConfig], dac: Weights[DacConfig]) -> Any:
    """Dia's pipeline on a side."""
    networks = {"dia": side.network("dia", dia), "dac": side.network("dac", dac)}
    return side.module("dia.pipeline").compose(networks, **side.fastest("dia", networks["dac"]))

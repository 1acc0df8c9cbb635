"""MARS5 and MetaVoice in published layouts, small: the committed golden files and their contents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file

from tests.golden.cases import DEFAULT

MARS5, METAVOICE = DEFAULT / "mars5", DEFAULT / "metavoice"
AR, NAR = MARS5 / "mars5_ar_tiny.safetensors", MARS5 / "mars5_nar_tiny.safetensors"
ENCODEC, VOCOS = MARS5 / "encodec_tiny.th", MARS5 / "vocos_tiny"
FIRST, SECOND = METAVOICE / "first_stage.pt", METAVOICE / "second_stage.pt"
SPEAKER = METAVOICE / "speaker_encoder.pt"

# model → kind → its file; the codecs are those of MARS5's set; the committed one of MetaVoice has none
SOURCES = {
    "mars5": {"mars5": AR, "mars5_nar": NAR, "encodec": ENCODEC, "vocos": VOCOS},
    "metavoice": {
        "metavoice": FIRST,
        "metavoice_second_stage": SECOND,
        "metavoice_speaker_encoder": SPEAKER,
        "encodec": ENCODEC,
        "vocos": VOCOS,
    },
}
FOLDERS = {
    **{"mars5": "", "mars5_nar": "nar", "encodec": "codec", "vocos": "vocoder", "metavoice": ""},
    **{"metavoice_second_stage": "second_stage", "metavoice_speaker_encoder": "speaker_encoder"},
}
DOCUMENTS = {
    "mars5": ["texttok.model", "speechtok.model"],
    "metavoice": ["tokenizer.json", "second_stage/tokenizer.json"],
}


def sources(model: str) -> list[Path]:
    return list(SOURCES[model].values())


def pickled(path: Path) -> Any:
    import torch

    return torch.load(path, weights_only=True, map_location="cpu")


def tensors(kind: str) -> dict[str, np.ndarray]:
    """Expected contents of a converted folder, by canonical name, in the file's dtype."""
    if kind in ("mars5", "mars5_nar"):
        held = load_file({"mars5": AR, "mars5_nar": NAR}[kind])
        return {name.replace("in_proj_", "in_proj."): tensor for name, tensor in held.items()}
    if kind == "encodec":
        return encodec_tensors(arrays(pickled(ENCODEC)))
    if kind == "vocos":
        held = arrays(pickled(VOCOS / "pytorch_model.bin"))
        return {name: tensor for name, tensor in held.items() if name != "head.istft.window"}
    if kind == "metavoice_speaker_encoder":
        held = arrays(pickled(SPEAKER)["model_state"])
        return {name: tensor for name, tensor in held.items() if not name.startswith("similarity")}
    held = arrays(pickled({"metavoice": FIRST, "metavoice_second_stage": SECOND}[kind])["model"])
    tied = ("lm_heads.0.weight",) if kind == "metavoice" else ()
    named = {name.removeprefix("_orig_mod."): tensor for name, tensor in held.items()}
    return {name: tensor for name, tensor in named.items() if name not in tied}


def arrays(held: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in held.items()}


def encodec_tensors(held: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """facebook's names to transformers', g v / ‖v‖ folded, the norm over all axes but one."""
    made = {}
    for name, tensor in held.items():
        if name.endswith(("inited", "cluster_size", "embed_avg", "weight_g")):
            continue
        if name.endswith("weight_v"):
            gain, wide = held[name.replace("weight_v", "weight_g")], tensor.astype(np.float64)
            tensor = (gain * wide / np.sqrt((wide**2).sum((1, 2), keepdims=True))).astype(np.float32)
        ours = (
            name.replace(".model.", ".layers.").replace("conv.conv.", "conv.").replace("vq.layers", "layers")
        )
        ours = ours.replace("convtr.convtr.", "conv.").replace("weight_v", "weight")
        made[ours.replace("_codebook", "codebook")] = tensor
    return made


def header(path: Path) -> dict[str, str]:
    with safe_open(path, "np") as opened:
        return opened.metadata()


def as_stored(kind: str, name: str, tensor: np.ndarray) -> np.ndarray:
    """In MLX's axis order: convolutions channels-last; transposed ones by their place."""
    if tensor.ndim != 3:
        return tensor
    transposed = kind == "encodec" and name in {f"decoder.layers.{at}.conv.weight" for at in (3, 6, 9, 12)}
    return tensor.transpose((1, 2, 0) if transposed else (0, 2, 1))


def edit(path: Path, change: Any) -> None:
    """Change a JSON file."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))

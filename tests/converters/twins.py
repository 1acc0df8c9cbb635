"""Golden weights in the layout that is not committed, written without the converter's maps."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from tests.temporary import run_folder
from tts_core.codecs import dac


def nari_twin(golden: Path, transformers: Path) -> Path:
    """Write a folder of that name with config.json and dia-v1.pth: transformers' weights in nari's form."""
    import torch

    made = run_folder("twins") / golden.name
    made.mkdir()
    shutil.copy(golden / "config.json", made)
    config = json.loads((golden / "config.json").read_text())
    kernels = {}
    for name, weight in load_file(transformers / "model.safetensors").items():
        part = config["encoder_config" if ".encoder." in name else "decoder_config"]
        for theirs, ours in _nari(name.removeprefix("model."), weight, part):
            kernels[theirs] = torch.from_numpy(np.ascontiguousarray(ours))
    torch.save(kernels, made / "dia-v1.pth")
    return made


def _nari(name: str, weight: np.ndarray, part: dict) -> list[tuple[str, np.ndarray]]:
    """(out, in) matrices become kernels (in..., out...); heads and channels get axes of their own."""
    at, _, last = name.removesuffix(".weight").rpartition(".")
    if last == "embed":
        each = np.split(weight, part["num_channels"])
        return [(f"decoder.embeddings.{channel}.weight", rows) for channel, rows in enumerate(each)]
    if weight.ndim == 1 or last == "embedding":
        return [(name, weight)]
    kernel = weight.T
    width = part["cross_head_dim" if "cross" in at else "head_dim"]
    if last in ("q_proj", "k_proj", "v_proj"):
        return [(name, kernel.reshape(len(kernel), -1, width))]
    if last == "o_proj":
        return [(name, kernel.reshape(-1, width, kernel.shape[1]))]
    if last == "gate_up_proj":
        return [(f"{at}.wi_fused.weight", kernel.reshape(len(kernel), 2, -1))]
    if last == "down_proj":
        return [(f"{at}.wo.weight", kernel)]
    assert last == "logits_dense", name
    return [("decoder.logits_dense.weight", kernel.reshape(len(kernel), part["num_channels"], -1))]


def transformers_twin(golden: Path) -> Path:
    """The folder `hf` of a descript checkpoint: modules matched by their order, weight norms folded."""
    import torch

    content = torch.load(golden / "weights_dac.pth", weights_only=True)
    given, state = content["metadata"]["kwargs"], content["state_dict"]
    config = {
        "model_type": "dac",
        "encoder_hidden_size": given["encoder_dim"],
        "downsampling_ratios": given["encoder_rates"],
        "hidden_size": given["encoder_dim"] * 2 ** len(given["encoder_rates"]),
        "decoder_hidden_size": given["decoder_dim"],
        "upsampling_ratios": given["decoder_rates"],
        "n_codebooks": given["n_codebooks"],
        "codebook_size": given["codebook_size"],
        "codebook_dim": given["codebook_dim"],
        "sampling_rate": given["sample_rate"],
    }
    theirs = dict.fromkeys(name.rpartition(".")[0] for name in state)
    ours = dict.fromkeys(
        name.rpartition(".")[0] for name in dac.parameter_shapes(dac.read_transformers(config))
    )
    tensors = {}
    for source, target in zip(theirs, ours, strict=True):
        for name in [name for name in state if name.rpartition(".")[0] == source]:
            kind = name.rpartition(".")[2]
            if kind == "weight_g":
                direction = state[f"{source}.weight_v"].numpy()
                length = np.sqrt(np.square(direction).sum(axis=(1, 2), keepdims=True))
                tensors[f"{target}.weight"] = direction / length * state[name].numpy()
            elif kind != "weight_v":
                tensors[f"{target}.{kind}"] = state[name].numpy()
    made = run_folder("twins") / "hf"
    made.mkdir()
    (made / "config.json").write_text(json.dumps(config))
    save_file(tensors, made / "model.safetensors", {"format": "pt"})
    return made

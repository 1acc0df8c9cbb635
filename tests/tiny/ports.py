"""Random folders of the published layouts as mlx-audio reads them."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from tests.golden.cases import DEFAULT

QWEN3 = DEFAULT / "mlx_community"


def mlx_qwen3(name: str, folder: Path) -> Path:
    """Copy a small folder that mlx-audio wrote, without the vectors beside it, which it would load too."""
    golden = shutil.ignore_patterns("golden.safetensors", "info.json")
    return Path(shutil.copytree(QWEN3 / name, folder, ignore=golden))


def mlx_dia(folder: Path) -> tuple[Path, Path]:
    """Write Dia v0.1 and its codec. → their folders."""
    import torch

    dia, dac = folder / "dia", folder / "dac"
    for made in (dia, dac):
        made.mkdir(parents=True)
    source = DEFAULT / "dia/v_v01"
    shutil.copy(source / "config.json", dia / "config.json")
    tensors = torch.load(source / "dia-v0_1.pth", weights_only=True)
    save_file(
        {name: np.ascontiguousarray(value) for name, value in tensors.items()}, dia / "model.safetensors"
    )
    descript = torch.load(DEFAULT / "dia/v_dac/weights_dac.pth", weights_only=True)
    (dac / "config.json").write_text(json.dumps(descript["metadata"]["kwargs"]))
    turned = {}
    for name, value in descript["state_dict"].items():
        transposed = re.fullmatch(r"decoder\.model\.\d+\.block\.1\.weight_[gv]", name)
        axes = (1, 2, 0) if transposed else (0, 2, 1)
        value = value.numpy().transpose(axes) if value.ndim == 3 else value.numpy()
        turned[re.sub(r"\.(block|model)\.(?=\d)", r".\1.layers.", name)] = np.ascontiguousarray(value)
    save_file(turned, dac / "model.safetensors")
    return dia, dac

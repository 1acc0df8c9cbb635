"""The codecs' golden tests can fail: tensors and settings are broken in a copy, and the check must fail."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.golden.cases import DEFAULT
from tests.golden.codec_bench import encodec_bench
from tests.golden.encodec_checks import EncodecCase, check_encodec, embedding, nearest
from tests.golden.vocos_checks import check_vocos
from tests.sides import BOTH

pytestmark = pytest.mark.rest

pytest.importorskip("torch", reason="torch is not installed: it is the oracle of both sides")

GOLDEN = DEFAULT / "mars5"
CLIP, CODES = "enc.bw6.len701", "k1_bw1"
PARTS = {
    "encodec_io": (CLIP, ("audio", "emb", "codes", "min_margin", "quantized", "decoded")),
    "vocos_io": (CODES, ("codes", "bandwidth_id", "features", "backbone", "head_linear", "audio")),
}
CHECKS: dict[str, Callable[[Path], None]] = {
    "encodec_io": lambda root: check_encodec(EncodecCase(root, "encodec_io"), "torch"),
    "vocos_io": lambda root: check_vocos(root / "vocos_io.json", "torch"),
}


def small(root: Path, name: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """One clip, the single layers and the transforms, in a folder whose weights are links."""
    kept = PARTS[name][0]
    for link in ("encodec_tiny.th", "encodec_tiny.json", "vocos_tiny"):
        (root / link).symlink_to((GOLDEN / link).resolve())
    tensors = load_file(GOLDEN / f"{name}.safetensors")
    info = json.loads((GOLDEN / f"{name}.json").read_text())
    info["cases"] = {kept: info["cases"][kept]}
    wanted = (kept, "layers.", "istft.")
    return {key: value for key, value in tensors.items() if key.startswith(wanted)}, info


def check(root: Path, name: str, tensors: dict[str, np.ndarray], info: dict[str, Any]) -> None:
    save_file(tensors, root / f"{name}.safetensors")
    (root / f"{name}.json").write_text(json.dumps(info))
    CHECKS[name](root)


@pytest.mark.parametrize("name", PARTS)
def test_the_small_copy_passes(name, tmp_path):
    check(tmp_path, name, *small(tmp_path, name))


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        *((name, f"{case}.{part}") for name, (case, parts) in PARTS.items() for part in parts),
        *(("encodec_io", f"layers.{part}") for part in ("audio", "dec_in")),
        *(("encodec_io", f"layers.encoder.model.{i}") for i in (0, 1, 3, 12, 13, 15)),
        *(("encodec_io", f"layers.decoder.model.{i}") for i in (0, 1, 3, 4, 15)),
        *(("vocos_io", f"istft.{part}") for part in ("re", "im", "same", "center")),
    ],
)
def test_every_tensor_is_compared(name, tensor, tmp_path):
    tensors, info = small(tmp_path, name)
    value = tensors[tensor] = tensors[tensor].copy()
    at = (0,) * (value.ndim - 1) + (-1,) if value.ndim else ()
    if tensor == "istft.im":
        at = (0, 1, 2)  # bin 0 has no effect
    value[at] += 1 if value.dtype.kind == "i" else 10 * np.abs(value).max()
    with pytest.raises(AssertionError):
        check(tmp_path, name, tensors, info)


@pytest.mark.parametrize("name", PARTS)
def test_an_unknown_tensor_is_never_passed_over(name, tmp_path):
    tensors, info = small(tmp_path, name)
    with pytest.raises(AssertionError, match="never compared: novel"):
        check(tmp_path, name, {**tensors, "novel": np.zeros(3, np.float32)}, info)


@pytest.mark.parametrize("name", PARTS)
def test_a_missing_tensor_is_named(name, tmp_path):
    tensors, info = small(tmp_path, name)
    missing = f"{PARTS[name][0]}.{PARTS[name][1][-1]}"
    del tensors[missing]
    with pytest.raises(AssertionError, match=f"missing.*{re.escape(missing)}|{re.escape(missing)}.*missing"):
        check(tmp_path, name, tensors, info)


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("encodec_io", ("hop",), 160),
        ("encodec_io", ("cases", CLIP, "bandwidth"), 3.0),
        ("encodec_io", ("cases", CLIP, "decoded_samples"), 701),
        ("encodec_io", ("layers", "encoder_modules"), [0]),
        ("encodec_io", ("cases",), {}),
        ("vocos_io", ("magnitude_clip",), 99.0),
        ("vocos_io", ("cases", CODES, "n_clipped_bins"), 0),
        ("vocos_io", ("cases", CODES, "bandwidth_id"), 2),
        ("vocos_io", ("istft", "paddings"), ["same"]),
    ],
)
def test_every_setting_is_held_against_the_network(name, path, value, tmp_path):
    tensors, info = small(tmp_path, name)
    place = info
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(AssertionError):
        check(tmp_path, name, tensors, info)


def least_margin(tensors: dict[str, np.ndarray]) -> float:
    """Exact least margin of the clip."""
    oracle = encodec_bench("torch", GOLDEN / "encodec_tiny.th", None).torch64
    latents = embedding(oracle, tensors[f"{CLIP}.audio"][:, 0])
    return float(nearest(oracle, latents, tensors[f"{CLIP}.codes"]).margins.min())


@pytest.mark.parametrize("side", BOTH)
def test_a_margin_that_happens_to_be_exact_binds_no_one(side, tmp_path):
    """A golden margin without an error does not show how exact float32 is there."""
    tensors, info = small(tmp_path, "encodec_io")
    tensors[f"{CLIP}.min_margin"] = np.array(least_margin(tensors), np.float32)
    save_file(tensors, tmp_path / "encodec_io.safetensors")
    (tmp_path / "encodec_io.json").write_text(json.dumps(info))
    check_encodec(EncodecCase(tmp_path, "encodec_io"), side)


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_a_margin_off_by_a_tenth_is_noticed(factor, tmp_path):
    tensors, info = small(tmp_path, "encodec_io")
    tensors[f"{CLIP}.min_margin"] = np.array(factor * least_margin(tensors), np.float32)
    with pytest.raises(AssertionError, match="min_margin"):
        check(tmp_path, "encodec_io", tensors, info)

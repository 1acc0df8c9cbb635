"""The golden tests of MetaVoice's audio parts can fail: each change in a copy must make the check fail."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.golden.cases import DEFAULT
from tests.golden.mbd_checks import check_tables
from tests.golden.speaker_checks import check_speaker

pytestmark = pytest.mark.rest

pytest.importorskip("torch", reason="torch is not installed: it is the oracle of both sides")

GOLDEN = DEFAULT / "metavoice"
TABLES, SPEAKER = load_file(GOLDEN / "mbd_tables.safetensors"), load_file(GOLDEN / "speaker.safetensors")
KEPT = "case2"  # the shortest recording
Tensors = dict[str, np.ndarray]


def tables(root: Path, tensors: Tensors, change: Callable[[Any], None] = lambda about: None) -> None:
    write(root, "mbd_tables", tensors, change)
    check_tables(root, "mbd_tables")


def speaker(root: Path, tensors: Tensors, change: Callable[[Any], None] = lambda about: None) -> None:
    """One recording, and the file; the weights are a link."""
    for name in ("speaker_encoder.pt", "speaker_ref_24k.wav"):
        (root / name).symlink_to((GOLDEN / name).resolve())

    def fewer(about: Any) -> None:
        about["cases"] = [about["cases"][int(KEPT[-1])]]
        about["slice_table"] = about["slice_table"][:3]
        about["settings"]["multi.embedding"]["waves"] = ["case0.wav"]
        change(about)

    write(root, "speaker", tensors, fewer)
    check_speaker(root, "torch")


def write(root: Path, name: str, tensors: Tensors, change: Callable[[Any], None]) -> None:
    about = json.loads((GOLDEN / f"{name}.json").read_text())
    change(about)
    (root / f"{name}.json").write_text(json.dumps(about))
    save_file(
        {key: np.ascontiguousarray(tensor) for key, tensor in tensors.items()}, root / f"{name}.safetensors"
    )


def one_recording() -> Tensors:
    kept = {f"case0{name.removeprefix(KEPT)}": x for name, x in SPEAKER.items() if name.startswith(KEPT)}
    kept |= {name: x for name, x in SPEAKER.items() if not name.startswith(("case", "multi"))}
    return kept | {"multi.embedding": kept["case0.embedding"]}


def changed(tensor: np.ndarray) -> np.ndarray:
    """A thousandth of the largest number, in the middle."""
    broken = tensor.copy()
    broken.flat[broken.size // 2] += 1e-3 * np.abs(tensor).max()
    return broken


def test_the_copies_pass(tmp_path):
    (tmp_path / "tables").mkdir()
    tables(tmp_path / "tables", TABLES)
    speaker(tmp_path, one_recording())


@pytest.mark.parametrize("name", sorted(TABLES))
def test_a_table_that_differs_is_noticed(name, tmp_path):
    with pytest.raises(AssertionError):
        tables(tmp_path, TABLES | {name: changed(TABLES[name])})


@pytest.mark.parametrize("name", sorted(one_recording()))
def test_a_speaker_s_tensor_that_differs_is_noticed(name, tmp_path):
    with pytest.raises(AssertionError):
        speaker(tmp_path, one_recording() | {name: changed(one_recording()[name])})


@pytest.mark.parametrize("check", [tables, speaker], ids=["tables", "speaker"])
def test_a_tensor_that_nothing_reads_is_noticed(check, tmp_path):
    whole = TABLES if check is tables else one_recording()
    with pytest.raises(AssertionError, match="never compared: more"):
        check(tmp_path, whole | {"more": np.zeros(3, np.float32)})


def test_settings_that_differ_are_noticed(tmp_path):
    def set_to(*path: Any, value: Any) -> Callable[[Any], None]:
        def change(about: Any) -> None:
            for step in path[:-1]:
                about = about[step]
            about[path[-1]] = value

        return change

    for i, change in enumerate(
        (
            set_to("loud_lkfs_in", value=-41.0),
            set_to("step_list", value=[999, 0]),
            set_to("split8", "half_size", value=313),
            set_to("schedule", "beta_exp", value=7.0),
            set_to("settings", "loud", "target_lkfs", value=-23),
        )
    ):
        (tmp_path / str(i)).mkdir()
        with pytest.raises(AssertionError):
            tables(tmp_path / str(i), TABLES, change)
    for i, change in enumerate(
        (
            set_to("slice_table", 2, "mel_slices", value=[[0, 161]]),
            set_to("cases", 0, "wav_slices", value=[[1, 25601]]),
            set_to("file", "trim_index", value=[3072, 30208]),
            set_to("hidden", value=47),
        )
    ):
        (tmp_path / f"speaker{i}").mkdir()
        with pytest.raises(AssertionError):
            speaker(tmp_path / f"speaker{i}", one_recording(), change)

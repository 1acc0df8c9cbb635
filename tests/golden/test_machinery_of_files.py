"""The golden tests of codecs and MetaVoice's audio parts can fail: each change in a copy must be noticed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.golden.cases import DEFAULT
from tests.golden.codec_bench import encodec_bench
from tests.golden.encodec_checks import EncodecCase, check_encodec, embedding, nearest
from tests.golden.mbd_checks import check_tables
from tests.golden.speaker_checks import check_speaker
from tests.golden.vocos_checks import check_vocos
from tests.sides import BOTH

pytestmark = pytest.mark.rest

pytest.importorskip("torch", reason="torch is not installed: it is the oracle of both sides")

CLIP, CODES, RECORDING = "enc.bw6.len701", "k1_bw1", "case2"  # the shortest
Tensors = dict[str, np.ndarray]


@dataclass(frozen=True)
class Subject:
    """A file of vectors, reduced to one clip so that its check is quick.

    file: of the committed set, without its ending. links: what it names, beside it. kept: beginnings of
    names. fewer: reduces what its JSON file says. missing: a tensor that is named if it is not there.
    settings: changes of that, by path, that the check notices. by: part of its largest number by which a
    changed tensor differs.
    """

    file: str
    check: Callable[[Path], None]
    links: tuple[str, ...] = ()
    kept: tuple[str, ...] = ("",)
    fewer: Callable[[Any], object] = lambda about: None
    missing: str | None = None
    settings: tuple[tuple[tuple[Any, ...], Any], ...] = ()
    by: float = 10.0

    def small(self) -> tuple[Tensors, Any]:
        about = json.loads((DEFAULT / f"{self.file}.json").read_text())
        self.fewer(about)
        tensors = load_file(DEFAULT / f"{self.file}.safetensors")
        return {name: value for name, value in tensors.items() if name.startswith(self.kept)}, about

    def run(self, root: Path, tensors: Tensors, about: Any) -> None:
        write(root, self, tensors, about)
        self.check(root)


def write(root: Path, subject: Subject, tensors: Tensors, about: Any) -> None:
    file = DEFAULT / subject.file
    for link in subject.links:
        (root / link).symlink_to((file.parent / link).resolve())
    (root / f"{file.name}.json").write_text(json.dumps(about))
    save_file({name: value.copy() for name, value in tensors.items()}, root / f"{file.name}.safetensors")


def one_recording(about: Any) -> None:
    about["cases"] = about["cases"][2:3]
    about["slice_table"] = about["slice_table"][:3]
    about["settings"]["multi.embedding"]["waves"] = ["case0.wav"]


class Speaker(Subject):
    """Its recordings are numbered, and one vector is that of several."""

    def small(self) -> tuple[Tensors, Any]:
        every, about = super().small()
        case = {name: x for name, x in every.items() if name.startswith(RECORDING)}
        tensors = {f"case0{name.removeprefix(RECORDING)}": x for name, x in case.items()}
        tensors |= {name: x for name, x in every.items() if not name.startswith(("case", "multi"))}
        return tensors | {"multi.embedding": tensors["case0.embedding"]}, about


SUBJECTS = {
    "encodec": Subject(
        "mars5/encodec_io",
        lambda root: check_encodec(EncodecCase(root, "encodec_io"), "torch"),
        ("encodec_tiny.th", "encodec_tiny.json"),
        (CLIP, "layers."),
        lambda about: about.update(cases={CLIP: about["cases"][CLIP]}),
        f"{CLIP}.decoded",
        (
            (("hop",), 160),
            (("cases", CLIP, "bandwidth"), 3.0),
            (("cases", CLIP, "decoded_samples"), 701),
            (("layers", "encoder_modules"), [0]),
            (("cases",), {}),
        ),
    ),
    "vocos": Subject(
        "mars5/vocos_io",
        lambda root: check_vocos(root / "vocos_io.json", "torch"),
        ("vocos_tiny",),
        (CODES, "istft."),
        lambda about: about.update(cases={CODES: about["cases"][CODES]}),
        f"{CODES}.audio",
        (
            (("magnitude_clip",), 99.0),
            (("cases", CODES, "n_clipped_bins"), 0),
            (("cases", CODES, "bandwidth_id"), 2),
            (("istft", "paddings"), ["same"]),
        ),
    ),
    "tables": Subject(
        "metavoice/mbd_tables",
        lambda root: check_tables(root, "mbd_tables"),
        settings=(
            (("loud_lkfs_in",), -41.0),
            (("step_list",), [999, 0]),
            (("split8", "half_size"), 313),
            (("schedule", "beta_exp"), 7.0),
            (("settings", "loud", "target_lkfs"), -23),
        ),
        by=1e-3,
    ),
    "speaker": Speaker(
        "metavoice/speaker",
        lambda root: check_speaker(root, "torch"),
        ("speaker_encoder.pt", "speaker_ref_24k.wav"),
        fewer=one_recording,
        settings=(
            (("slice_table", 2, "mel_slices"), [[0, 161]]),
            (("cases", 0, "wav_slices"), [[1, 25601]]),
            (("file", "trim_index"), [3072, 30208]),
            (("hidden",), 47),
        ),
        by=1e-3,
    ),
}
every_subject = pytest.mark.parametrize("name", SUBJECTS)


def changed(tensor: np.ndarray, by: float) -> np.ndarray:
    """Change the number in the middle: a whole one by 1, another by a part of the largest."""
    made = tensor.copy()
    made.flat[made.size // 2] += 1 if made.dtype.kind in "iu" else by * np.abs(made).max()
    return made


@every_subject
def test_the_small_copy_passes(name: str, tmp_path: Path) -> None:
    SUBJECTS[name].run(tmp_path, *SUBJECTS[name].small())


@pytest.mark.parametrize(
    ("name", "tensor"),
    [(name, tensor) for name, subject in SUBJECTS.items() for tensor in subject.small()[0]],
)
def test_every_tensor_is_compared(name: str, tensor: str, tmp_path: Path) -> None:
    tensors, about = SUBJECTS[name].small()
    broken = changed(tensors[tensor], SUBJECTS[name].by)
    with pytest.raises(AssertionError):
        SUBJECTS[name].run(tmp_path, tensors | {tensor: broken}, about)


@every_subject
def test_an_unknown_tensor_is_never_passed_over(name: str, tmp_path: Path) -> None:
    tensors, about = SUBJECTS[name].small()
    with pytest.raises(AssertionError, match="never compared: novel"):
        SUBJECTS[name].run(tmp_path, tensors | {"novel": np.zeros(3, np.float32)}, about)


@pytest.mark.parametrize("name", [name for name, subject in SUBJECTS.items() if subject.missing])
def test_a_missing_tensor_is_named(name: str, tmp_path: Path) -> None:
    tensors, about = SUBJECTS[name].small()
    missing = str(SUBJECTS[name].missing)
    del tensors[missing]
    with pytest.raises(AssertionError, match=f"missing.*{re.escape(missing)}|{re.escape(missing)}.*missing"):
        SUBJECTS[name].run(tmp_path, tensors, about)


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [(name, *setting) for name, subject in SUBJECTS.items() for setting in subject.settings],
    ids=str,
)
def test_every_setting_is_held_against_the_network(
    name: str, path: tuple[Any, ...], value: Any, tmp_path: Path
) -> None:
    tensors, about = SUBJECTS[name].small()
    place = about
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(AssertionError):
        SUBJECTS[name].run(tmp_path, tensors, about)


def least_margin(tensors: Tensors) -> float:
    """Exact least margin of EnCodec's clip."""
    oracle = encodec_bench("torch", DEFAULT / "mars5/encodec_tiny.th", None).torch64
    latents = embedding(oracle, tensors[f"{CLIP}.audio"][:, 0])
    return float(nearest(oracle, latents, tensors[f"{CLIP}.codes"]).margins.min())


@pytest.mark.parametrize("side", BOTH)
def test_a_margin_that_happens_to_be_exact_binds_no_one(side: str, tmp_path: Path) -> None:
    """A golden margin without an error does not show how exact float32 is there."""
    tensors, about = SUBJECTS["encodec"].small()
    tensors[f"{CLIP}.min_margin"] = np.array(least_margin(tensors), np.float32)
    write(tmp_path, SUBJECTS["encodec"], tensors, about)
    check_encodec(EncodecCase(tmp_path, "encodec_io"), side)


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_a_margin_off_by_a_tenth_is_noticed(factor: float, tmp_path: Path) -> None:
    tensors, about = SUBJECTS["encodec"].small()
    tensors[f"{CLIP}.min_margin"] = np.array(factor * least_margin(tensors), np.float32)
    with pytest.raises(AssertionError, match="min_margin"):
        SUBJECTS["encodec"].run(tmp_path, tensors, about)

"""Files of vectors of the original code of MARS5 and MetaVoice: each file, each side.

A file's test compares everything in it and fails if a tensor was never read.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.golden import mars5_nar_checks
from tests.golden.cases import Vectors, golden_root, need
from tests.golden.encodec_checks import check_codec_wave, check_encodec, discover_encodec
from tests.golden.mars5_ar_checks import (
    check_checkpoint,
    check_forward,
    check_generate,
    check_samplers,
    check_tokens,
)
from tests.golden.mars5_e2e_checks import check_whole_runs
from tests.golden.mbd_checks import check_mbd, check_tables
from tests.golden.metavoice_lm_bench import folders, language_bench, published_tokenizers
from tests.golden.metavoice_lm_checks import (
    check_greedy,
    check_layout,
    check_names,
    check_sampled,
    check_sampler,
    check_slow,
    check_teacher,
)
from tests.golden.metavoice_quant_checks import check_quantised
from tests.golden.metavoice_second_checks import check_end_to_end, check_second, check_truncated
from tests.golden.metavoice_tokenizer_checks import check_tokenizer
from tests.golden.speaker_checks import check_speaker
from tests.golden.vocos_checks import check_default_decoder, check_vocos, default_cases, discover_vocos
from tests.sides import SIDES

pytestmark = pytest.mark.golden

MARS5, METAVOICE = golden_root() / "mars5", golden_root() / "metavoice"
NAR = [file for file in sorted(MARS5.glob("*.safetensors")) if file.stem in mars5_nar_checks.CHECKS]
ENCODEC, VOCOS, LANGUAGE = discover_encodec(MARS5), discover_vocos(MARS5), folders(golden_root())


def check_language_models(folder: Path, side: str) -> None:
    vectors = Vectors(folder / "lm.safetensors")
    bench = language_bench(side, folder, vectors)
    for check in (
        *(check_names, check_layout, check_teacher, check_greedy, check_sampled, check_sampler, check_slow),
        *(check_second, check_truncated, check_end_to_end),
    ):
        check(bench)
    vectors.assert_all_read()


def with_files(folder: Path, *names: str) -> list[Path]:
    """The folder, if it has all these files."""
    return [folder] if all((folder / name).exists() for name in names) else []


SIDED: dict[str, tuple[list[Any], Callable[[Any, str], None]]] = {
    "ar_forward": (with_files(MARS5, "ar_forward.json"), check_forward),
    "ar_generate": (with_files(MARS5, "ar_generate.json"), check_generate),
    "samplers": (with_files(MARS5, "samplers.json"), check_samplers),
    "diffusion": (NAR, mars5_nar_checks.check),
    "encodec": (ENCODEC, check_encodec),
    "vocos": (VOCOS, check_vocos),
    "whole runs": (with_files(MARS5, "tts_e2e.json"), check_whole_runs),
    "codec wave": (with_files(METAVOICE, "encodec.safetensors", "mbd.safetensors"), check_codec_wave),
    "speaker": (with_files(METAVOICE, "speaker.safetensors"), check_speaker),
    "multi-band diffusion": (with_files(METAVOICE, "mbd.safetensors"), check_mbd),
    # the vocoder's vectors are in MARS5's folder
    "default decoder": ([file for file in VOCOS if default_cases(file)], check_default_decoder),
    "language models": (LANGUAGE, check_language_models),
}
SHARED: dict[str, tuple[list[Any], Callable[[Any], None]]] = {  # what both sides share
    "checkpoint": (
        sorted({file.name.partition(".")[0] for file in MARS5.glob("mars5_ar*")}),
        lambda name: check_checkpoint(MARS5, name),
    ),
    "tok_pairs": (with_files(MARS5, "tok_pairs.json"), check_tokens),
    # the part of mbd.safetensors that needs no weights
    "tables": (
        sorted(METAVOICE.glob("mbd_tables*.safetensors")),
        lambda file: check_tables(METAVOICE, file.stem),
    ),
    "tokenizer": (LANGUAGE, lambda folder: check_tokenizer(folder, published_tokenizers(folder))),
    "quantized": (LANGUAGE, check_quantised),
}
CASES = [
    pytest.param(check, given, side, id=f"{name}/{getattr(given, 'stem', given)}/{side}")
    for name, (found, check) in SIDED.items()
    for given in found
    for side in SIDES
]
OTHERS = [
    pytest.param(check, given, id=f"{name}/{getattr(given, 'stem', given)}")
    for name, (found, check) in SHARED.items()
    for given in found
]

if CASES:

    @pytest.mark.parametrize(("check", "given", "side"), CASES)
    def test_file(check: Callable[[Any, str], None], given: Any, side: str) -> None:
        need(side)
        check(given, side)


if OTHERS:

    @pytest.mark.parametrize(("check", "given"), OTHERS)
    def test_file_without_a_side(check: Callable[[Any], None], given: Any) -> None:
        pytest.importorskip("torch", reason="torch is not installed: it reads the checkpoints")
        pytest.importorskip("mlx.core", reason="mlx is not installed: it reads the bridged numbers")
        check(given)


def test_every_file_belongs_to_a_test() -> None:
    """mars5: every file of vectors of the codecs and the diffusion is opened."""
    known = [*(case.name for case in ENCODEC), *(file.stem for file in (*VOCOS, *NAR))]
    files = [file.stem for kind in ("encodec", "vocos") for file in MARS5.glob(f"{kind}*_io.safetensors")]
    files += [
        file.stem for kind in ("nar_", "diffusion", "trim") for file in MARS5.glob(f"{kind}*.safetensors")
    ]
    assert not {*files} - {*known}, "never opened by a test"

"""Folders of vectors of the original code, found by the kind in their info.json: each folder, each side.

A folder's test compares everything in its files and fails if a tensor was never read.
"""

from collections.abc import Callable

import pytest

from tests.golden.cases import Case, discover, golden_root, need
from tests.golden.dac_checks import check_dac, check_e2e
from tests.golden.dia2_checks import check_dia2, check_prefix
from tests.golden.dia2_checks import check_sampler as check_dia2_sampler
from tests.golden.dia2_text_checks import check_align, check_machine, check_script
from tests.golden.dia_checks import check_dia
from tests.golden.mimi_checks import check_mimi
from tests.golden.mlx_community_checks import check_dac as check_mlx_dac
from tests.golden.mlx_community_checks import check_folder
from tests.golden.qwen3_checks import check_model
from tests.golden.qwen3_codec_checks import check_codec
from tests.golden.qwen3_text_checks import check_sampler as check_qwen3_sampler
from tests.golden.qwen3_text_checks import check_tokenizer
from tests.golden.sampler_checks import check_sampler, rules_of
from tests.sides import SIDES
from tts_core.qwen3.config import MODES

pytestmark = pytest.mark.golden

SIDED: dict[str, Callable[[Case, str], None]] = {
    "dia": check_dia,
    "dac": check_dac,
    "e2e": check_e2e,
    "sampler": lambda case, side: check_sampler(case, rules_of(side)),
    "dia2": check_dia2,
    "dia2_prefix": check_prefix,
    "dia2_sampler": check_dia2_sampler,
    "mimi": check_mimi,
    **{f"qwen3_{mode}": check_model for mode in MODES},
    "qwen3_codec": check_codec,
    **{f"mlx_audio_qwen3_{mode}": check_folder for mode in MODES},
    "mlx_audio_dac": check_mlx_dac,
    "qwen3_sampler": check_qwen3_sampler,
}
SHARED: dict[str, Callable[[Case], None]] = {  # what both sides share
    "dia2_script": check_script,
    "dia2_machine": check_machine,
    "dia2_align": check_align,
    "qwen3_tokenizer": check_tokenizer,
}
MODELS = ("dia", "dia2", "qwen3", "mlx_community")
CASES = [case for model in MODELS for case in discover(model)]


def check(case: Case, side: str) -> None:
    """Check everything in a case on one side."""
    kind = case.kind
    assert kind in (*SIDED, *SHARED), f"{case}: kind {kind!r} has no check"
    if kind in SIDED:
        SIDED[kind](case, side)
    else:
        SHARED[kind](case)


if CASES:

    @pytest.mark.parametrize(
        ("case", "side"),
        [
            pytest.param(case, side, id=f"{case}/{side}")
            for case in CASES
            for side in (["torch"] if case.kind in SHARED else SIDES)
        ],
    )
    def test_case(case: Case, side: str) -> None:
        if case.kind not in SHARED:
            need(side)
        check(case, side)

    def test_every_golden_file_belongs_to_a_case() -> None:
        """dia, dia2, qwen3, mlx_community: every file of vectors belongs to a test."""
        known = [case.folder for case in CASES]
        for model in MODELS:
            files = (golden_root() / model).rglob("golden.safetensors")
            stray = [str(file) for file in files if file.parent not in known]
            assert not stray, f"never opened by a test: {', '.join(stray)}"

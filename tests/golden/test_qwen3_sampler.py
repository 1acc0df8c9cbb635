"""Qwen3-TTS's draws against vectors of transformers' filters, each side."""

from typing import Any

import numpy as np
import pytest

from tests.golden.cases import Case, discover
from tests.sides import BOTH, Side
from tests.tolerance import EPS
from tts_core.qwen3.sampling import Qwen3Choice

pytestmark = pytest.mark.golden

CASES = [case for case in discover("qwen3") if case.kind == "qwen3_sampler"]
ROUNDINGS = 2  # penalty and temperature

if CASES:

    @pytest.mark.parametrize("side", BOTH)
    @pytest.mark.parametrize("case", CASES, ids=str)
    def test_sampler(case: Case, side: str) -> None:
        pytest.importorskip("mlx.core" if side == "mlx" else "torch", reason=f"{side} is not installed")
        vectors, one = case.vectors(), Side(side)
        module = one.module("qwen3.sampling")
        for i, stated in enumerate(case.info["cases"]):
            logits, history = vectors[f"{i}.logits"], vectors[f"{i}.history"]
            scores = vectors[f"{i}.scores"]
            choice = Qwen3Choice(
                not stated["do_sample"], stated["temperature"], stated["top_k"], stated["top_p"]
            )
            x = one.array(logits)
            if not stated["stage"]:
                seen = np.zeros(logits.shape, bool)
                np.put_along_axis(seen, history.astype(np.int64), True, axis=1)
                x = module.penalize(x, one.array(seen), stated["repetition_penalty"])
                x = module.allow(x, case.info["eos"], stated["n"])
            own = module.candidates(x, choice)
            where = f"{case}: {i} {stated}"
            np.testing.assert_array_equal(np.isinf(one.numpy(own)), np.isinf(scores), where)
            np.testing.assert_allclose(one.numpy(own), scores, rtol=ROUNDINGS * EPS, atol=0, err_msg=where)
            uniform = one.array(vectors[f"{i}.uniform"]) if stated["do_sample"] else None
            assert one.numpy(module.draw(own, choice, uniform)).tolist() == _picks(stated), where
            assert np.isfinite(scores).sum(axis=-1).tolist() == stated["count"], where


def _picks(stated: dict[str, Any]) -> list[int]:
    return stated["pick"]

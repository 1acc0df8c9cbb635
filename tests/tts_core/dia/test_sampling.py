"""Settings of Dia's draws, and a draw without candidates; the rules: tests/golden."""

import numpy as np
import pytest

from tests.draws import only, score
from tests.sides import PORT, YARDSTICK
from tests.tts_core.dia.sampling_rules import (
    candidates_0626,
)
from tts_core.dia.options import SAMPLER_0626, DiaSampling, allowed_ids
from tts_core.errors import UsageError

INF = np.inf


def kept(logits):
    return np.flatnonzero(np.isfinite(logits[0])).tolist()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cfg_scale", -0.1),
        ("cfg_scale", float("nan")),
        ("cfg_scale", INF),
        ("temperature", -1e-9),
        ("temperature", float("nan")),
        ("temperature", INF),
        ("top_p", 0.0),
        ("top_p", 1.01),
        ("top_p", float("nan")),
        ("top_k", -1),
        ("top_k", 1.5),
    ],
)
def test_settings_out_of_range_are_named(field, value):
    good = {"cfg_scale": 3.0, "temperature": 1.2, "top_p": 0.95, "top_k": 45}
    assert DiaSampling(**good)
    with pytest.raises(UsageError, match=f"^{field}: "):
        DiaSampling(**good | {field: value})


def test_when_guidance_picks_forbidden_ids_alone_every_allowed_id_is_a_candidate():
    """Upstream fails there: with a small top_k all guided candidates may be special ids."""
    cond = np.array([[[0.0, 1.0, 2.0, 0.5, 9.0]]], np.float32)  # id 3 is EOS here, 4 special
    uncond = np.zeros_like(cond)
    sampling = DiaSampling(cfg_scale=3.0, temperature=0.0, top_p=1.0, top_k=1)
    kept = candidates_0626(cond, uncond, sampling, eos=3)
    assert kept[0, 0].tolist() == [0.0, 1.0, 2.0, 0.5, -np.inf]
    for framework, side in (("torch", YARDSTICK), ("mlx.core", PORT)):
        pytest.importorskip(framework)
        sampler = only(SAMPLER_0626, "guidance", "allowed_ids", "guided_top_k")
        own = score(side, sampler, (cond, uncond), sampling, allowed=allowed_ids(1, 5, 3), end=3)
        np.testing.assert_array_equal(own, kept)

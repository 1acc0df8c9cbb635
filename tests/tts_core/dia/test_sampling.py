"""The sampling rules where golden vectors of the originals do not go: ties, draws, no candidates.

tests/golden finds each broken rule and each swapped order.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import only, score
from tests.sides import PORT, YARDSTICK
from tests.tts_core.dia.sampling_rules import (
    candidates_0626,
    candidates_v01,
    draw,
    keep_top_k,
    keep_top_p,
    softmax,
)
from tts_core.dia.options import SAMPLER_0626, DiaSampling, allowed_ids
from tts_core.errors import UsageError

INF = np.inf


def kept(logits):
    return np.flatnonzero(np.isfinite(logits[0])).tolist()


def test_the_id_that_crosses_top_p_is_kept():
    values = np.log(np.array([[0.5, 0.3, 0.15, 0.05]]))
    assert [kept(keep_top_p(values, p)) for p in (0.01, 0.49, 0.51, 0.79, 0.81, 0.96, 1.0)] == [
        [0],
        [0],
        [0, 1],
        [0, 1],
        [0, 1, 2],
        [0, 1, 2, 3],
        [0, 1, 2, 3],
    ]


def test_top_k_ranks_by_one_array_and_keeps_the_other():
    ranking, logits = np.array([[3.0, 2.0, 1.0]]), np.array([[7.0, 8.0, 9.0]])
    assert keep_top_k(ranking, logits, 2).tolist() == [[7, 8, -INF]]
    for all_of_them in (0, 3, 50):
        assert keep_top_k(ranking, logits, all_of_them).tolist() == [[7, 8, 9]]


def test_ties_at_the_edge_are_all_kept():
    values = np.array([[1.0, 2.0, 1.0, 0.0]])
    assert kept(keep_top_k(values, values, 2)) == [0, 1, 2]
    assert kept(keep_top_p(np.log(np.array([[0.3, 0.4, 0.3]])), 0.5)) == [0, 1, 2]


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.floats(0.05, 1.0), st.floats(0.1, 5.0))
def test_something_is_always_left(seed, top_k, top_p, temperature):
    rng = np.random.default_rng(seed)
    cond, uncond = rng.normal(scale=3, size=(2, 4, 20)).astype(np.float32)
    # special ids in the lead could take all places of the 0626 rule's top-k
    cond[:, 19:] = uncond[:, 19:] = -50
    cond[1:, 18] = uncond[1:, 18] = -50
    for candidates in (candidates_0626, candidates_v01):
        logits = candidates(cond, uncond, DiaSampling(3.0, temperature, top_p, top_k), 18)
        assert np.isfinite(logits).any(axis=-1).all()
        drawn = draw(logits, rng.uniform(1e-6, 1 - 1e-6, logits.shape))
        assert np.isfinite(logits[np.arange(4), drawn]).all()


def test_draw_follows_the_probabilities():
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05]))
    uniform = np.random.default_rng(1).uniform(2**-24, 1 - 2**-24, (40_000, 4))
    counts = np.bincount(draw(np.broadcast_to(logits, uniform.shape), uniform), minlength=4)
    expected = 40_000 * softmax(logits)
    # chi-square with 3 degrees of freedom, p = 0.001
    assert np.sum((counts - expected) ** 2 / expected) < 16.27


def test_draw_by_hand_and_never_a_forbidden_id():
    logits = np.array([[0.0, -INF, 0.0]])
    assert draw(logits, np.array([[0.5, 1 - 1e-7, 0.6]])).tolist() == [2]  # -log(-log u) grows with u
    assert draw(logits, np.array([[0.7, 1 - 1e-7, 0.6]])).tolist() == [0]
    assert draw(logits, np.full((1, 3), 0.5)).dtype == np.int32


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

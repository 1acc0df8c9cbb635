"""The sampling rules on examples worked by hand: two channels, ids 0-3 codes, 4 EOS, 5 PAD, 6 BOS.

tests/golden compares golden vectors of the originals; here each rule and their order are tested separately.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tts_core.dia import sampling_rules as sampling
from tests.tts_core.dia.sampling_rules import (
    candidates_0626,
    candidates_v01,
    draw,
    keep_top_k,
    keep_top_p,
    softmax,
)
from tts_core.dia.sampling import DiaSampling
from tts_core.errors import UsageError

EOS = 4
INF = np.inf


def rows(first, second=(0, 0, 0, 0, 0, 0, 0)):
    return np.array([first, second], np.float32)


def kept(logits, channel=0):
    return np.flatnonzero(np.isfinite(logits[channel])).tolist()


def rule(cfg_scale=0.0, temperature=1.0, top_p=1.0, top_k=0):
    return DiaSampling(cfg_scale=cfg_scale, temperature=temperature, top_p=top_p, top_k=top_k)


COND = rows([3, 2, 1, 0, -1, 9, 9])
UNCOND = rows([9, 2, -3, 0, -1, 9, 9])


def test_guidance_is_centred_on_the_conditional_logits():
    guided = sampling.guide(COND, UNCOND, 3.0)
    assert guided[0].tolist() == [3 - 18, 2, 1 + 12, 0, -1, 9, 9]  # 4 cond - 3 uncond
    np.testing.assert_array_equal(sampling.guide(COND, UNCOND, 0.0), COND)


def test_0626_guidance_picks_and_the_conditional_logits_are_drawn_from():
    """Guided: -15, 2, 13, 0, -1, 9, 9. The largest are 2, 5, 6, 1; of those 1 has the best conditional."""
    logits = candidates_0626(COND, UNCOND, rule(3.0, 0.0, top_k=4), EOS)
    assert kept(logits) == [1, 2]
    assert logits[0, [1, 2]].tolist() == [2, 1]
    assert int(np.argmax(logits[0])) == 1  # neither the guided best, 2, nor the conditional best, 0


def test_0626_special_ids_use_up_places_of_the_first_top_k():
    """PAD and BOS take two of the three places, and are forbidden afterwards."""
    assert kept(candidates_0626(COND, UNCOND, rule(3.0, 0.0, top_k=3), EOS)) == [2]


def test_v01_draws_from_the_guided_logits_and_takes_top_k_after_forbidding():
    logits = candidates_v01(COND, UNCOND, rule(3.0, 1.0, top_k=3), EOS)
    assert kept(logits) == [1, 2, 3]
    assert logits[0, [1, 2, 3]].tolist() == [2, 13, 0]


def test_v01_greedy_has_no_top_k_and_scales_eos():
    logits = candidates_v01(COND, UNCOND, rule(3.0, 0.0, top_k=1), EOS)
    np.testing.assert_allclose(logits[0], [-15, 2, 13, 0, -0.8, -INF, -INF], rtol=1e-6)


@pytest.mark.parametrize(
    ("eos", "wins"), [(10.0, True), (8.1 / 0.8, True), (7.9 / 0.8, False), (-2.0, False)]
)
def test_v01_eos_must_be_a_quarter_ahead_in_channel_0(eos, wins):
    logits = candidates_v01(rows([8, 2, 1, 0, eos, 0, 0]), np.zeros((2, 7), np.float32), rule(0.0, 1.0), EOS)
    assert (EOS in kept(logits)) == (wins and eos * 0.8 > 8)
    assert {0, 1, 2, 3} <= set(kept(logits))  # unlike 0626, a winning EOS does not become certain


def test_v01_scaling_raises_a_negative_eos_logit():
    values = rows([-10, -11, -12, -13, -12, 0, 0])
    logits = candidates_v01(values, values, rule(0.0, 0.0), EOS)
    assert int(np.argmax(logits[0])) == EOS  # -9.6 beats -10


@pytest.mark.parametrize("candidates", [candidates_0626, candidates_v01])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_ids_above_eos_never_and_eos_only_in_channel_0(candidates, temperature):
    values = rows([0, 0, 0, 0, 5, 9, 9], [0, 0, 0, 0, 5, 9, 9])
    logits = candidates(values, values, rule(3.0, temperature), EOS)
    assert EOS in kept(logits)
    assert kept(logits, channel=1) == [0, 1, 2, 3]


def test_0626_eos_is_certain_as_argmax_and_impossible_otherwise():
    certain = candidates_0626(rows([1, 1, 1, 1, 1.5, 0, 0]), COND, rule(), EOS)
    assert kept(certain) == [EOS]
    never = candidates_0626(rows([1, 1, 1, 1.5, 1.4, 0, 0]), COND, rule(), EOS)
    assert kept(never) == [0, 1, 2, 3]
    tie = candidates_0626(rows([1, 1, 1, 1.5, 1.5, 0, 0]), COND, rule(), EOS)
    assert kept(tie) == [0, 1, 2, 3]  # the first of equals is the argmax
    greedy = candidates_0626(rows([1, 1, 1, 1.5, 1.4, 0, 0]), COND, rule(temperature=0.0), EOS)
    assert kept(greedy) == [0, 1, 2, 3, EOS]


def test_0626_eos_outside_the_guided_top_k_cannot_end():
    """EOS has the best conditional logit, but guidance ranks it last."""
    cond, uncond = rows([1, 1.1, 1.2, 1.3, 5, 0, 0]), rows([0, 0, 0, 0, 9, 9, 9])
    assert kept(candidates_0626(cond, uncond, rule(3.0, 1.0, top_k=2), EOS)) == [2, 3]


def test_temperature_comes_before_top_p():
    """At temperature 1 the best id has 0.88 and is the only one; at 4 it has 0.45 and is not."""
    values = rows([4, 2, 0, -9, -9, -9, -9])
    assert kept(candidates_0626(values, values, rule(top_p=0.6), EOS)) == [0]
    assert kept(candidates_0626(values, values, rule(temperature=4.0, top_p=0.6), EOS)) == [0, 1]
    assert kept(candidates_v01(values, values, rule(temperature=4.0, top_p=0.6), EOS)) == [0, 1]
    logits = candidates_0626(values, values, rule(temperature=4.0), EOS)
    assert logits[0, :3].tolist() == [1.0, 0.5, 0.0]


def test_top_k_comes_before_top_p():
    """No one of ten equal ids has 0.5; of the two that top-k leaves, the first has 0.53."""
    values = np.zeros((1, 10), np.float32)
    values[0, :2] = 0.12, 0.001
    cut = keep_top_p(keep_top_k(values, values, 2), 0.5)
    assert kept(cut) == [0]
    assert kept(keep_top_k(keep_top_p(values, 0.5), keep_top_p(values, 0.5), 2)) == [0, 1]
    wide = np.concatenate([values, np.full((1, 3), -9, np.float32)], axis=1)
    for candidates in (candidates_0626, candidates_v01):
        assert kept(candidates(wide, wide, rule(top_k=2, top_p=0.5), 10)) == [0]


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


def test_top_p_ignores_order_and_offset():
    values = np.log(np.array([[0.05, 0.5, 0.15, 0.3]]))
    for offset in (-20, 0, 10):  # logits are not log-probabilities
        assert kept(keep_top_p(values + offset, 0.7)) == [1, 3]


def test_top_k_ranks_by_one_array_and_keeps_the_other():
    ranking, logits = np.array([[3.0, 2.0, 1.0]]), np.array([[7.0, 8.0, 9.0]])
    assert keep_top_k(ranking, logits, 2).tolist() == [[7, 8, -INF]]
    for all_of_them in (0, 3, 50):
        assert keep_top_k(ranking, logits, all_of_them).tolist() == [[7, 8, 9]]


def test_ties_at_the_edge_are_all_kept():
    values = np.array([[1.0, 2.0, 1.0, 0.0]])
    assert kept(keep_top_k(values, values, 2)) == [0, 1, 2]
    assert kept(keep_top_p(np.log(np.array([[0.3, 0.4, 0.3]])), 0.5)) == [0, 1, 2]


def test_channels_do_not_see_each_other():
    rng = np.random.default_rng(0)
    cond, uncond = rng.normal(size=(2, 3, 2, 30)).astype(np.float32)
    setting = rule(3.0, 1.2, 0.9, 8)
    for candidates in (candidates_0626, candidates_v01):
        whole = candidates(cond, uncond, setting, 27)
        for item in range(3):
            np.testing.assert_array_equal(whole[item], candidates(cond[item], uncond[item], setting, 27))
        assert whole.dtype == np.float32


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.floats(0.05, 1.0), st.floats(0.1, 5.0))
def test_something_is_always_left(seed, top_k, top_p, temperature):
    rng = np.random.default_rng(seed)
    cond, uncond = rng.normal(scale=3, size=(2, 4, 20)).astype(np.float32)
    cond[:, 19:] = uncond[
        :, 19:
    ] = -50  # special ids in the lead could take all places of the 0626 rule's top-k
    cond[1:, 18] = uncond[1:, 18] = -50
    for candidates in (candidates_0626, candidates_v01):
        logits = candidates(cond, uncond, rule(3.0, temperature, top_p, top_k), 18)
        assert np.isfinite(logits).any(axis=-1).all()
        drawn = draw(logits, rng.uniform(1e-6, 1 - 1e-6, logits.shape))
        assert np.isfinite(logits[np.arange(4), drawn]).all()


def test_draw_follows_the_probabilities():
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05]))
    uniform = np.random.default_rng(1).uniform(2**-24, 1 - 2**-24, (40_000, 4))
    counts = np.bincount(draw(np.broadcast_to(logits, uniform.shape), uniform), minlength=4)
    expected = 40_000 * softmax(logits)
    assert (
        np.sum((counts - expected) ** 2 / expected) < 16.27
    )  # chi-square with 3 degrees of freedom, p = 0.001


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
    for side in (torch_candidates, mlx_candidates):
        np.testing.assert_array_equal(side(cond, uncond, sampling, 3), kept)


def torch_candidates(cond, uncond, sampling, eos):
    torch = pytest.importorskip("torch")
    from torch_ref.dia.sampling import candidates_0626

    return candidates_0626(torch.from_numpy(cond), torch.from_numpy(uncond), sampling, eos).numpy()


def mlx_candidates(cond, uncond, sampling, eos):
    mx = pytest.importorskip("mlx.core")
    from mlx_port.dia.sampling import candidates_0626

    return np.array(candidates_0626(mx.array(cond), mx.array(uncond), sampling, eos))

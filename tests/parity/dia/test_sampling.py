"""Both sides' candidates and draws against the NumPy definition, ties and special ids among the logits."""

import numpy as np
import pytest

from tests.draws import draw, only, score
from tests.sides import BY_PACKAGE
from tests.tolerance import assert_within
from tests.tts_core.dia import sampling_rules as rules
from tts_core.dia.options import SAMPLER_0626, SAMPLER_V01, DiaSampling, allowed_ids

RULES = {"candidates_0626": SAMPLER_0626, "candidates_v01": SAMPLER_V01}
SETTINGS = [
    DiaSampling(3.0, 1.2, 0.95, 45),
    DiaSampling(3.0, 0.0, 0.95, 45),
    DiaSampling(0.0, 1.0, 1.0, 0),
    DiaSampling(1.0, 0.3, 0.5, 1),
    DiaSampling(7.5, 2.0, 0.99, 67),
    DiaSampling(3.0, 1.3, 0.9, 5),
]
EOS = 60


def logits(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """cond, uncond: (B, C, V) float32."""
    random = np.random.default_rng(7)
    cond, uncond = random.normal(0, 3, (2, 60, 4, 67)).astype(np.float32)
    if kind == "ties":  # whole numbers: several ids share the edge of top-k and the first place
        cond, uncond = cond.round(), uncond.round()
    if kind == "ends":  # EOS is the best in a third of the rows, in a third close to it
        cond[::3, :, EOS] = uncond[::3, :, EOS] = 12
        cond[1::3, :, EOS] = cond[1::3, :, :EOS].max(axis=-1) - 1e-3
    return cond, uncond


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("kind", ["plain", "ties", "ends"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", BY_PACKAGE)
def test_candidates(name: str, rule: str, kind: str, setting: DiaSampling) -> None:
    """The same ids stay, with the same logits; few rows are on top-p's edge, where rounding decides.

    At temperature 0 only the best id matters.
    """
    side, (cond, uncond) = BY_PACKAGE[name], logits(kind)
    expected = getattr(rules, rule)(cond, uncond, setting, EOS)
    exact = getattr(rules, rule)(cond.astype(np.float64), uncond.astype(np.float64), setting, EOS)
    inputs = {"allowed": allowed_ids(cond.shape[1], cond.shape[2], EOS), "end": EOS}
    got = score(side, RULES[rule], (cond, uncond), setting, **inputs)
    if setting.temperature == 0:
        np.testing.assert_array_equal(got.argmax(axis=-1), exact.argmax(axis=-1))
        drawn = draw(side, RULES[rule], (cond, uncond), setting, np.full_like(cond, 0.01), **inputs)
        np.testing.assert_array_equal(drawn, exact.argmax(axis=-1))
        return
    clear = ((expected > -np.inf) == (exact > -np.inf)).all(axis=-1)
    assert clear.mean() > 0.97
    np.testing.assert_array_equal((got > -np.inf)[clear], (exact > -np.inf)[clear])
    kept = clear[..., None] & (exact > -np.inf)
    assert_within(got[kept], expected[kept], exact[kept], rule)


@pytest.mark.parametrize("name", BY_PACKAGE)
def test_draw(name: str) -> None:
    """The id of the definition, the first of equal ones; forbidden ids are never drawn."""
    side, sampler, (cond, uncond) = BY_PACKAGE[name], only(SAMPLER_0626), logits("plain")
    kept = rules.candidates_0626(cond, uncond, SETTINGS[0], EOS)
    uniform = np.random.default_rng(8).uniform(1e-6, 1 - 1e-6, kept.shape).astype(np.float32)
    uniform[0, 0] = np.float32(2**-24)
    uniform[0, 1] = np.float32(1 - 2**-24)
    drawn = draw(side, sampler, [kept], SETTINGS[0], uniform)
    np.testing.assert_array_equal(drawn, rules.draw(kept.astype(np.float64), uniform.astype(np.float64)))
    assert (np.take_along_axis(kept, drawn[..., None].astype(int), axis=-1) > -np.inf).all()
    level = np.zeros((1, 1, 67), np.float32)
    assert draw(side, sampler, [level], SETTINGS[0], level + np.float32(0.5)) == 0

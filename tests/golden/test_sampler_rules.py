"""The samplers' golden checks can fail: each broken rule and each swapped order is found."""

from functools import partial

import numpy as np
import pytest

from tests.golden.cases import DEFAULT, Case
from tests.golden.sampler_checks import check_sampler
from tests.tts_core.dia import sampling_rules as sampling
from tests.tts_core.dia.sampling_rules import forbid_special, guide, keep_top_k, keep_top_p
from tts_core.dia.sampling import V01_EOS_SCALE

SAMPLER = Case(DEFAULT / "dia" / "sampler")


def heat(logits, setting):
    return logits / np.float32(setting.temperature or 1)


def finish(logits, setting):
    return (
        keep_top_p(keep_top_k(logits, logits, setting.top_k), setting.top_p)
        if setting.temperature
        else logits
    )


def keep_top_p_without_the_crossing_id(logits, top_p):
    """Keep the best id and those whose cumulative sum, with the id itself, is at most top_p."""
    order = np.argsort(-logits, axis=-1)
    held = np.cumsum(np.take_along_axis(sampling.softmax(logits), order, -1), axis=-1)
    drop = (held > top_p) & (np.arange(logits.shape[-1]) > 0)
    dropped = np.zeros_like(drop)
    np.put_along_axis(dropped, order, drop, -1)
    return np.where(dropped, -np.inf, logits)


def wrong_0626(broken, cond, uncond, s, eos):
    """The 0626 rule with one part broken."""
    guided = guide(cond, uncond, s.cfg_scale - 1 if broken == "guidance centred elsewhere" else s.cfg_scale)
    if broken == "the guided logits drawn from":
        cond = guided
    if broken == "special ids forbidden before the first top-k":
        guided = forbid_special(guided, eos)
    logits = cond if broken == "no first top-k" else keep_top_k(guided, cond, s.top_k)
    if broken != "special ids allowed":
        logits = forbid_special(logits, eos)
    if s.temperature == 0:
        return guided if broken == "greedy takes the guided best" else logits
    if broken == "top-p before the temperature":
        return heat(finish(sampling.eos_only_as_argmax(logits, eos), s), s)
    logits = logits if broken == "no temperature" else heat(logits, s)
    if broken != "no EOS rule":
        logits = sampling.eos_only_as_argmax(logits, eos)
    if broken == "no top-p":
        return logits
    if broken == "top-p drops the id that crosses it":
        return keep_top_p_without_the_crossing_id(logits, s.top_p) if s.top_p < 1 else logits
    return finish(logits, s)


def wrong_v01(broken, cond, uncond, s, eos):
    """The v0.1 rule with one part broken."""
    if broken == "the 0626 rule":
        return sampling.candidates_0626(cond, uncond, s, eos)
    logits = guide(cond, uncond, s.cfg_scale - 1 if broken == "guidance centred elsewhere" else s.cfg_scale)
    if broken == "top-k before the special ids are forbidden":
        logits = keep_top_k(logits, logits, s.top_k)
    if broken != "special ids allowed":
        logits = forbid_special(logits, eos)
    if broken != "EOS not scaled":
        logits[..., 0, eos] *= np.float32(V01_EOS_SCALE)
    if s.temperature == 0:
        return logits
    logits = heat(logits, s)
    if broken == "EOS forced":
        logits = sampling.eos_only_as_argmax(logits, eos)
    elif broken != "EOS drawn by chance":
        best = np.argmax(logits, axis=-1)[..., None] == eos
        logits = np.where(~best & (np.arange(logits.shape[-1]) == eos), -np.inf, logits)
    return logits if broken == "no top-k, no top-p" else finish(logits, s)


RIGHT = "nothing"
WRONG = {
    "candidates_0626": [
        "guidance centred elsewhere",
        "the guided logits drawn from",
        "no first top-k",
        "special ids forbidden before the first top-k",
        "special ids allowed",
        "greedy takes the guided best",
        "top-p before the temperature",
        "no temperature",
        "no EOS rule",
        "no top-p",
        "top-p drops the id that crosses it",
    ],
    "candidates_v01": [
        "the 0626 rule",
        "guidance centred elsewhere",
        "special ids allowed",
        "top-k before the special ids are forbidden",
        "EOS not scaled",
        "EOS forced",
        "EOS drawn by chance",
        "no top-k, no top-p",
    ],
}


def sampler_with(rule: str, broken: str):
    """Both NumPy rules, of which `rule` has `broken` broken."""

    def of(name: str):
        if name != rule:
            return getattr(sampling, name)
        return partial(wrong_0626 if rule == "candidates_0626" else wrong_v01, broken)

    return of


@pytest.mark.parametrize("rule", WRONG)
def test_the_definition_and_its_copy_here_pass(rule):
    check_sampler(SAMPLER, lambda name: getattr(sampling, name))
    check_sampler(SAMPLER, sampler_with(rule, RIGHT))


@pytest.mark.parametrize(("rule", "broken"), [(rule, broken) for rule in WRONG for broken in WRONG[rule]])
def test_every_rule_of_the_samplers_matters(rule, broken):
    with pytest.raises(AssertionError):
        check_sampler(SAMPLER, sampler_with(rule, broken))

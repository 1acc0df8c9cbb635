"""The samplers' golden checks can fail: each broken rule and each swapped order is found."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from tests.golden.cases import DEFAULT, Case
from tests.golden.sampler_checks import check_sampler
from tests.tts_core.dia import sampling_rules as sampling

SAMPLER = Case(DEFAULT / "dia" / "sampler")
TEMPERATURE = " / np.float32(sampling.temperature)"
LAST = "keep_top_p(keep_top_k(logits, logits, sampling.top_k), sampling.top_p)"
GUIDED = "forbid_special(guide(cond, uncond, sampling.cfg_scale), eos)"
RARE_END = "np.where(not_best & (ids == eos), -np.inf, logits)"
# function of the definition → mistake → its text, and what stands in its place
WRONG: dict[str, dict[str, list[tuple[str, str]]]] = {
    "candidates_0626": {
        "guidance centred elsewhere": [("sampling.cfg_scale", "sampling.cfg_scale - 1")],
        "the guided logits drawn from": [("forbid_special(cond", "forbid_special(guided")],
        "no first top-k": [("keep_top_k(guided, allowed, sampling.top_k)", "allowed")],
        "special ids forbidden before the first top-k": [
            ("keep_top_k(guided, allowed", "keep_top_k(forbid_special(guided, eos), allowed")
        ],
        "special ids allowed": [("forbid_special(cond, eos)", "cond")],
        "greedy takes the guided best": [("return logits", "return guided")],
        "top-p before the temperature": [(TEMPERATURE, ""), (LAST, f"{LAST}{TEMPERATURE}")],
        "no temperature": [(TEMPERATURE, "")],
        "no EOS rule": [("eos_only_as_argmax(", "np.add("), (f"{TEMPERATURE}, eos", f"{TEMPERATURE}, 0")],
        "no top-p": [(LAST, "logits")],
    },
    "keep_top_p": {
        "top-p drops the id that crosses it": [
            ("before <= top_p", "(before + falling <= top_p) | (before == 0)"),
        ],
    },
    "candidates_v01": {
        "the 0626 rule": [(f"logits = {GUIDED}", "return candidates_0626(cond, uncond, sampling, eos)")],
        "guidance centred elsewhere": [("sampling.cfg_scale", "sampling.cfg_scale - 1")],
        "special ids allowed": [(GUIDED, "guide(cond, uncond, sampling.cfg_scale)")],
        "top-k before the special ids are forbidden": [
            (GUIDED, "guide(cond, uncond, sampling.cfg_scale)\n    logits = forbid_special(logits, eos)"),
            ("logits = forbid", "logits = keep_top_k(logits, logits, sampling.top_k)\n    logits = forbid"),
        ],
        "EOS not scaled": [("np.float32(V01_EOS_SCALE)", "1")],
        "EOS forced": [(RARE_END, "eos_only_as_argmax(logits, eos)")],
        "EOS drawn by chance": [(RARE_END, "logits")],
        "no top-k, no top-p": [(LAST, "logits")],
    },
}


def broken(function: str, mistake: str) -> Callable[[str], Any]:
    """The rules by name, as defined, but for a mistake in one function."""
    before, start, text = inspect.getsource(sampling).partition(f"def {function}(")
    for old, new in WRONG[function][mistake]:
        assert old in text
        text = text.replace(old, new, 1)
    made: dict[str, Any] = {}
    exec(before + start + text, made)
    return made.__getitem__


def test_the_definition_passes() -> None:
    check_sampler(SAMPLER, lambda name: getattr(sampling, name))


@pytest.mark.parametrize(
    ("function", "mistake"), [(function, mistake) for function in WRONG for mistake in WRONG[function]]
)
def test_every_rule_of_the_samplers_matters(function: str, mistake: str) -> None:
    rules = broken(function, mistake)
    with pytest.raises(AssertionError):
        check_sampler(SAMPLER, rules)

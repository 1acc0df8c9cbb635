"""Checks of the samplers' golden files: from two branches of logits to the probabilities of a draw."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np

from tests.draws import score
from tests.golden.cases import Case, Vectors
from tests.sides import Side
from tests.tolerance import assert_within
from tests.tts_core.dia import sampling_rules
from tts_core.dia.options import SAMPLER_0626, SAMPLER_V01, DiaSampling, allowed_ids

RULES = {"head": "candidates_0626", "hf": "candidates_0626", "v1": "candidates_v01"}
SPECIAL_IDS = 4  # a vocabulary has the codebook's entries, then EOS, PAD, BOS and one unused id
Candidates = Callable[[np.ndarray, np.ndarray, DiaSampling, int], np.ndarray]


def check_sampler(case: Case, candidates_of: Callable[[str], Candidates]) -> None:
    """All files of a sampler folder against one implementation. candidates_of: a rule's name → that rule."""
    logits = Vectors(case.folder / "head.safetensors")
    cond, uncond = logits["cond"], logits["uncond"]
    for file in case.folder.glob("*.safetensors"):
        assert file.stem in RULES, f"{file}: unknown sampler, expected {', '.join(RULES)}"
    for stem, rule in RULES.items():
        vectors = logits if stem == "head" else Vectors(case.folder / f"{stem}.safetensors")
        check_file(vectors, cond, uncond, candidates_of(rule), getattr(sampling_rules, rule))
        vectors.assert_all_read()


def check_file(
    vectors: Vectors, cond: np.ndarray, uncond: np.ndarray, candidates: Candidates, definition: Candidates
) -> None:
    """One sampler's file. definition: the rule in NumPy, which float64 makes the oracle."""
    assert "settings" in vectors.metadata, f"{vectors.file}: metadata key 'settings' is missing"
    eos = cond.shape[-1] - SPECIAL_IDS
    for number, given in json.loads(vectors.metadata["settings"]):
        what = f"{vectors.file.name}, setting {number} {given}"
        setting = DiaSampling(
            cfg_scale=given["cfg"], temperature=given["temp"], top_p=given["top_p"], top_k=given["k"]
        )
        logits = candidates(cond, uncond, setting, eos)
        if setting.temperature == 0:
            np.testing.assert_array_equal(
                np.argmax(logits, axis=-1), vectors[f"{number}.argmax"], err_msg=what
            )
            continue
        tokens, probs, counts = (vectors[f"{number}.{name}"] for name in ("token", "prob", "count"))
        np.testing.assert_array_equal(
            np.isfinite(logits).sum(axis=-1), counts, err_msg=f"{what}: how many candidates"
        )
        real = np.arange(tokens.shape[-1]) < counts[..., None]
        golden, chosen = np.zeros_like(logits), np.zeros(logits.shape, bool)
        at = (*np.nonzero(real)[:-1], tokens[real])
        golden[at], chosen[at] = probs[real], True
        np.testing.assert_array_equal(np.isfinite(logits), chosen, err_msg=f"{what}: the candidates")
        wide = definition(cond.astype(np.float64), uncond.astype(np.float64), setting, eos)
        known = sampling_rules.softmax(definition(cond, uncond, setting, eos))
        oracle = sampling_rules.softmax(wide)
        assert_within(golden, known, oracle, f"{what}: golden vector")
        assert_within(sampling_rules.softmax(logits), known, oracle, what)


def rules_of(kind: str) -> Callable[[str], Candidates]:
    """A side's own samplers, NumPy in and out."""
    samplers = {"candidates_0626": SAMPLER_0626, "candidates_v01": SAMPLER_V01}

    def named(rule: str) -> Candidates:
        return lambda cond, uncond, setting, eos: score(
            Side(kind),
            samplers[rule],
            (cond, uncond),
            setting,
            allowed=allowed_ids(cond.shape[-2], cond.shape[-1], eos),
            end=eos,
        )

    return named

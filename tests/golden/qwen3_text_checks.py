"""Checks of Qwen3-TTS's tokenizer, and of its draws against vectors of transformers' filters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.draws import draw, score
from tests.golden.cases import Case
from tests.golden.qwen3_bench import tokenizer
from tests.sides import Side
from tests.tolerance import EPS
from tts_core.errors import UsageError
from tts_core.files.json_object import read_json
from tts_core.qwen3.config import SUPPRESSED
from tts_core.qwen3.layout import FIRST, OTHERS, Qwen3Choice, allowed_ids
from tts_core.text.byte_bpe import MOST_IDS

ROUNDINGS = 2  # penalty and temperature


def check_tokenizer(case: Case) -> None:
    read = tokenizer(case.folder, MOST_IDS)
    texts = read_json(case.path("cases.json"))["cases"]
    assert (len(texts), len(read.added)) == (case.info["cases"], case.info["added"])
    for each in texts:
        assert read.encode(each["text"]) == each["ids"], each["text"]
    for token in read.added:
        with pytest.raises(UsageError, match="controls the model"):
            read.check_plain(f"a{token}b", "text")


def check_sampler(case: Case, side: str) -> None:
    vectors, one = case.vectors(), Side(side)
    for i, stated in enumerate(case.info["cases"]):
        logits, history = vectors[f"{i}.logits"], vectors[f"{i}.history"]
        scores = vectors[f"{i}.scores"]
        choice = Qwen3Choice(not stated["do_sample"], stated["temperature"], stated["top_k"], stated["top_p"])
        numbers, sampler, inputs = (
            choice.numbers(stated.get("repetition_penalty", 1.0)),
            OTHERS,
            dict[str, Any](),
        )
        if not stated["stage"]:
            seen = np.zeros(logits.shape, bool)
            np.put_along_axis(seen, history.astype(np.int64), True, axis=1)
            allowed = allowed_ids(logits.shape[-1], SUPPRESSED, case.info["eos"])
            step = np.full((len(logits), 1), stated["n"])
            inputs = {"allowed": allowed, "counts": seen, "step": step, "end": case.info["eos"]}
            sampler = FIRST
        own = score(one, sampler, [logits], numbers, **inputs)
        where = f"{case}: {i} {stated}"
        if stated["do_sample"]:
            np.testing.assert_array_equal(np.isinf(own), np.isinf(scores), where)
            np.testing.assert_allclose(own, scores, rtol=ROUNDINGS * EPS, atol=0, err_msg=where)
        uniform = vectors[f"{i}.uniform"] if stated["do_sample"] else None
        assert draw(one, sampler, [logits], numbers, uniform, **inputs).tolist() == stated["pick"], where
        assert np.isfinite(scores).sum(axis=-1).tolist() == stated["count"], where

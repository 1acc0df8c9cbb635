"""Checks of the second stage in MetaVoice's lm.json and lm.safetensors, and from text to eight codebooks."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.golden.metavoice_lm_bench import SAFE, LanguageBench, Networks
from tests.golden.metavoice_lm_checks import NOTHING, check_forced, check_prefix, run_loop
from tests.tiny.metavoice import tilted
from tests.tolerance import bound
from tests.tts_core.metavoice import sampling_rules as rules
from tts_core.metavoice.inputs import FirstStageSampling, flattened, second_stage_rows
from tts_core.metavoice.text import normalise


def check_second(bench: LanguageBench) -> None:
    """Input rows, logits with and without speaker, argmax, probabilities, codes."""
    vectors, info, given = bench.vectors, bench.info["second"], bench.settings["second"]
    window = bench.side.second.config.max_position_embeddings
    assert (window, bench.tokenizers.second_stage.offset) == (given["window"], given["text_offset"])
    rows = np.stack([_rows(bench, t, c) for t, c in zip(info["texts"], info["codes"], strict=True)])
    np.testing.assert_array_equal(rows, vectors["second.input"], err_msg="second.input")
    embeddings, kept = vectors["slow.spk"][:, 0], info["kept_positions"]
    memory: dict[int, np.ndarray] = {}

    def logits(networks: Networks) -> np.ndarray:
        if id(networks) not in memory:
            memory[id(networks)] = networks.predict(networks.second, rows, embeddings)
        return memory[id(networks)]

    name = "second.logits_kept"
    bench.compare(name, vectors[name], lambda networks: logits(networks)[:, :, kept])

    absent = bench.settings["second.nospk_logits0"]
    item, places = absent["item"], absent["positions"]

    def without(networks: Networks) -> np.ndarray:
        return networks.predict(networks.second, rows[item : item + 1], None)[:, :, places]

    bench.compare("second.nospk_logits0", vectors["second.nospk_logits0"], without)

    margins, best, own = vectors["second.margin"], vectors["second.argmax"], logits(bench.side)
    np.testing.assert_allclose(margins.min(axis=(1, 2)), info["min_margin"], rtol=0, atol=1e-6)
    np.testing.assert_allclose(_margins(own), margins, rtol=0, atol=SAFE, err_msg="second.margin")
    safe = margins > SAFE
    assert safe.mean() > 0.9
    np.testing.assert_array_equal(own.argmax(axis=-1)[safe], best[safe], err_msg="second.argmax")
    for number, golden in enumerate(info["final_codes"]):
        _, codes = tilted(np.concatenate([rows[number], best[number]]))
        assert codes.tolist() == golden, f"second.final_codes {number}"

    drawn = bench.settings["second.probs_h0_t0.8_k200"]

    def probabilities(networks: Networks) -> np.ndarray:
        chosen = logits(networks)[drawn["item"], drawn["head"]][drawn["positions"]]
        given = drawn["temperature"], None, drawn["top_k"]
        return networks.probabilities(chosen, FirstStageSampling(1.0, 1.0, *given, rule="slow"))

    bench.compare("second.probs_h0_t0.8_k200", vectors["second.probs_h0_t0.8_k200"], probabilities)
    definition = rules.probabilities_slow(
        vectors["second.logits_kept"][drawn["item"], drawn["head"]],
        drawn["temperature"],
        None,
        drawn["top_k"],
    )
    np.testing.assert_allclose(
        definition, vectors["second.probs_h0_t0.8_k200"], rtol=1e-5, atol=1e-8, err_msg="second.probs"
    )


def check_truncated(bench: LanguageBench) -> None:
    """More frames than the window holds."""
    given, info = bench.settings["second.trunc"], bench.info["second"]
    codes = info["trunc_codes_in"]
    assert len(codes[0]) == given["frames"]
    row = _rows(bench, given["text"], codes)
    np.testing.assert_array_equal(row[None], bench.vectors["second.trunc_input"], err_msg="trunc_input")
    embedding = bench.vectors["slow.spk"][0, 0]
    _check_final(
        bench, given["text"], codes, embedding, info["trunc_final_codes"], "second.trunc_final_codes"
    )


def check_end_to_end(bench: LanguageBench) -> None:
    """Text to eight codebooks, greedy."""
    case, given = bench.info["end_to_end"], bench.settings["end_to_end"]["first_stage"]
    prompt, embedding = bench.info["prompt"], bench.vectors["spk_emb"]
    assert case["text"] == bench.settings["prompt"]["text"]
    sampling = FirstStageSampling(
        cfg_scale=given["guidance"], temperature=given["temperature"], top_p=None, top_k=given["top_k"]
    )
    tokens, margins = case["first_stage_tokens"], case["first_stage_margins"]
    assert min(margins) == case["first_stage_min_margin"]
    check_forced(bench, "end_to_end", tokens, margins, embedding, sampling)
    limit, end = given["max_new_tokens"], given["end_of_audio_token"]
    own = run_loop(bench, [prompt], embedding, sampling, [limit], end)
    check_prefix("end_to_end.first_stage_tokens", own[0], tokens, margins)
    _, codes = flattened(np.array(tokens))
    assert codes.tolist() == case["extracted"], "end_to_end.extracted"
    _check_final(bench, case["text"], case["extracted"], embedding[0], case["final_codes"], "end_to_end")


def _check_final(
    bench: LanguageBench,
    text: str,
    codes: list[list[int]],
    embedding: np.ndarray,
    golden: list[list[int]],
    what: str,
) -> None:
    """Compare the most probable codes, read as upstream reads them, in each codebook without a near-tie.

    Rounding may decide a near-tie: its true margin is below twice the allowed error.
    """
    row = _rows(bench, text, codes)[None]
    truth, known = (n.predict(n.second, row, embedding[None]) for n in (bench.torch64, bench.torch32))
    near = (_margins(truth) < 2 * bound(known, truth))[0]
    own: Any = bench.side.fill_codebooks_as_upstream(
        bench.side.second,
        bench.tokenizers.second_stage.encode(normalise(text)),
        np.array(codes, np.int32),
        embedding,
        NOTHING,
        top_k=1,
    )
    clear = [True] * len(row[0]) + [not book.any() for book in near]
    assert sum(clear) > len(clear) / 2, f"{what}: too many near ties to compare"
    for book, (mine, theirs) in enumerate(zip(own, golden, strict=True)):
        if clear[book]:
            frames = min(len(mine), len(theirs))
            assert mine[:frames].tolist() == theirs[:frames], f"{what}: codebook {book}"
    if all(clear):
        assert own.tolist() == golden, what


def _rows(bench: LanguageBench, text: str, codes: list[list[int]]) -> np.ndarray:
    ids = bench.tokenizers.second_stage.encode(normalise(text))
    return second_stage_rows(ids, np.array(codes), bench.side.second.config.max_position_embeddings)


def _margins(logits: np.ndarray) -> np.ndarray:
    ordered = np.partition(logits, -2, axis=-1)
    return ordered[..., -1] - ordered[..., -2]

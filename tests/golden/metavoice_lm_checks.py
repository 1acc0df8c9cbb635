"""Checks of MetaVoice's lm.json and lm.safetensors: text, first stage, sampling."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from tests.draws import draw
from tests.golden.metavoice_lm_bench import SAFE, LanguageBench, Networks
from tests.tiny.metavoice import tilted
from tests.tts_core.metavoice import sampling_rules as rules
from tts_core.metavoice.config import first_stage_parameter_shapes, second_stage_parameter_shapes
from tts_core.metavoice.inputs import (
    LOWEST_TEMPERATURE,
    SAMPLER,
    FirstStageSampling,
    MetaVoiceInputs,
    flattened,
    interleave,
)
from tts_core.metavoice.text import normalise


class Recorded:
    """Recorded waiting times as the uniform numbers that they come from."""

    def __init__(self, waiting: np.ndarray):
        self.waiting = waiting

    def uniform(self, step: int, shape: tuple[int, ...]) -> np.ndarray:
        assert shape == self.waiting[step].shape, f"step {step}: noise {self.waiting[step].shape} for {shape}"
        return np.exp(-self.waiting[step].astype(np.float64))


NOTHING = Recorded(np.zeros((0, 0)))  # for steps that draw nothing
FAST = {  # first stage: upstream's second layout, which only renames
    r"transformer\.h\.": "layers.",
    r"\.attn\.c_attn\.": ".attention.wqkv.",
    r"\.attn\.c_proj\.": ".attention.wo.",
    r"\.mlp\.c_proj\.": ".feed_forward.w2.",
    r"\.mlp\.": ".feed_forward.",
    r"\.ln_1\.": ".attention_norm.",
    r"\.ln_2\.": ".ffn_norm.",
    r"transformer\.ln_f\.": "norm.",
    r"transformer\.wtes\.0\.": "tok_embeddings.",
    r"transformer\.wpe\.": "pos_embeddings.",
    r"lm_heads\.0\.": "output.",
}


def fast_sampling(given: Mapping[str, Any]) -> FirstStageSampling:
    names = {"cfg_scale": "guidance"} | {name: name for name in ("temperature", "top_p", "top_k")}
    return FirstStageSampling(**{ours: given[theirs] for ours, theirs in names.items()})


def slow_sampling(given: Mapping[str, Any]) -> FirstStageSampling:
    """guidance: of the speaker, and of the text."""
    filters = (given[name] for name in ("temperature", "top_p", "top_k"))
    return FirstStageSampling(*given["guidance"], *filters, rule="slow")


def check_names(bench: LanguageBench) -> None:
    """Published names, in both layouts of the first stage, and the number of parameters."""
    for stage in ("first", "second"):
        config = getattr(bench.side, stage).config
        shapes = (first_stage_parameter_shapes if stage == "first" else second_stage_parameter_shapes)(config)
        head = {"lm_heads.0.weight"} if stage == "first" else set()
        assert {*shapes, *head} == set(bench.info[f"{stage}_stage_keys"]), f"{stage}_stage_keys"
        if stage == "first":
            assert sorted(map(_fast_name, {*shapes, *head})) == sorted(bench.info["fast_keys"])
            assert sum(map(prod, shapes.values())) == bench.info["first_stage_params"]


def _fast_name(name: str) -> str:
    for pattern, renamed in FAST.items():
        name = re.sub(pattern, renamed, name)
    return name


def check_layout(bench: LanguageBench) -> None:
    """The prompt, interleaving, and both adapters."""
    given, table = bench.settings["prompt"], bench.tokenizers.first_stage
    ids = table.encode(normalise(given["text"]))
    assert ids.tolist() == bench.info["prompt"]
    assert (table.offset, table.end_of_text, len(ids)) == (given["offset"], given["end_of_text"], given["n"])
    combine = bench.info["combine"]
    joined = interleave(np.array(combine["text"]), np.array(combine["audio"]))
    assert [joined.tolist()] == combine["out"]
    for number, case in enumerate(bench.info["adapters"]):
        adapter = {"flattened": flattened, "tilted": tilted}[case["kind"]]
        text, codes = adapter(np.array(case["tokens"]))
        assert text.tolist() == case["text_ids"], f"adapters[{number}]"
        assert codes.tolist() == case["audio"], f"adapters[{number}]"


def check_teacher(bench: LanguageBench) -> None:
    """Every layer's output and the logits, at once and step by step, with and without speaker; guidance."""
    vectors, tokens = bench.vectors, bench.vectors["teacher.tokens"][None]
    embedding, prefill = vectors["spk_emb"], bench.settings["teacher"]["n_prompt"]
    memory: dict[int, tuple[list[np.ndarray], np.ndarray, np.ndarray]] = {}

    def run(networks: Networks) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
        """Blocks' outputs, (2, T, D) each, and logits of all ids at once and one by one, (2, T, V) each."""
        if id(networks) not in memory:
            side, network = networks, networks.first
            sampling = FirstStageSampling(cfg_scale=3.0)
            step = side.step(network, embedding, sampling, room=tokens.shape[1], end_of_text=0)
            rows = side.array(np.concatenate([tokens, tokens]))
            with side.inference():
                whole = side.numpy(network(rows, step.speakers, network.new_cache(tokens.shape[1])))
                cuts = [(0, prefill), *((t, t + 1) for t in range(prefill, tokens.shape[1]))]
                parts = [side.numpy(network(rows[:, a:b], step.speakers, step.cache)) for a, b in cuts]
                hidden, layers = [], network.new_cache(tokens.shape[1])
                x = network.transformer.embed(rows, step.speakers, 0)
                for block, cache in zip(network.transformer.h, layers, strict=True):
                    x = block(x, cache)
                    hidden.append(side.numpy(x))
            memory[id(networks)] = hidden, whole, np.concatenate(parts, axis=1)
        return memory[id(networks)]

    golden = vectors["teacher.logits"]
    for layer in range(bench.side.first.config.num_hidden_layers):
        name = f"teacher.hidden{layer}"
        bench.compare(name, vectors[name], lambda networks, at=layer: run(networks)[0][at])
    bench.compare("teacher.logits", golden, lambda networks: run(networks)[1])
    bench.compare("teacher.logits, step by step", golden, lambda networks: run(networks)[2])
    last = vectors["teacher.slow_last_logits"]
    bench.compare("teacher.slow_last_logits", last, lambda networks: run(networks)[1][:, -1:])
    guidance = FirstStageSampling(cfg_scale=bench.settings["cfg.guided_logits"]["guidance"])
    bench.compare(
        "cfg.guided_logits",
        vectors["cfg.guided_logits"],
        lambda networks: networks.guided(list(run(networks)[1]), guidance),
    )


def check_greedy(bench: LanguageBench) -> None:
    """Every greedy run: each step after the golden tokens, and the loop up to the first unsafe margin."""
    embedding = bench.vectors["spk_emb"]
    for name, case in bench.info["greedy"].items():
        given, what = bench.settings["greedy"][name], f"greedy.{name}"
        made = len(case["tokens"]) - len(bench.info["prompt"])
        room = bench.side.first.config.max_position_embeddings - len(bench.info["prompt"])
        limit = given["max_new_tokens"] or room
        sampling = fast_sampling(given)
        assert len(case["margins"]) == made, what
        assert min(case["margins"]) == case["min_margin"], what
        check_forced(bench, what, case["tokens"], case["margins"], embedding, sampling)
        own = run_loop(
            bench, [bench.info["prompt"]], embedding, sampling, [limit], given["end_of_audio_token"]
        )
        check_prefix(what, own[0], case["tokens"], case["margins"])


def check_sampled(bench: LanguageBench) -> None:
    """Every sampled run with its recorded noise, step by step after the golden tokens and as a loop."""
    prompt, embedding = bench.info["prompt"], bench.vectors["spk_emb"]
    for name, case in bench.info["sampled"].items():
        given, what = bench.settings["sampled"][name], f"sampled.{name}"
        noise = bench.vectors[f"{what}.noise"]
        sampling = fast_sampling(case)
        made = len(case["tokens"]) - len(prompt)
        assert made == given["max_new_tokens"] == len(noise), what
        safe = check_forced(bench, what, case["tokens"], None, embedding, sampling, noise)
        assert safe > made / 2, f"{what}: only {safe} of {made} steps have a safe margin"
        if case["min_log_margin"] > SAFE:
            end = given["end_of_audio_token"]
            own = run_loop(bench, [prompt], embedding, sampling, [made], end, [Recorded(noise)])
            assert own[0].tolist() == case["tokens"], what


def check_forced(
    bench: LanguageBench,
    what: str,
    tokens: list[int],
    margins: list[float] | None,
    embedding: np.ndarray,
    sampling: FirstStageSampling,
    noise: np.ndarray | None = None,
) -> int:
    """Check every step after the golden tokens; return the number of steps with a safe margin.

    margins: stored ones, of guided logits, which must be ours too; None takes the logarithm of the race's.
    """
    side, ids = bench.side, np.array(tokens, np.int32)
    start = len(bench.info["prompt"])
    step = side.step(bench.side.first, embedding, sampling, room=len(ids), end_of_text=0)
    safe = 0
    for at in range(start, len(ids)):
        rows = side.rows(step, ids[None, :start] if at == start else ids[None, at - 1 : at])
        guided = side.guided(list(rows), sampling)
        probs = side.probabilities(guided, sampling)
        score = probs if noise is None else probs / noise[at - start]
        if margins is None:
            with np.errstate(divide="ignore"):  # a filter may leave one id
                best, second = np.log(np.sort(score[0])[[-1, -2]])
            margin = best - second
        else:
            best, second = np.sort(guided[0])[[-1, -2]]
            margin = margins[at - start]
            assert abs(best - second - margin) < SAFE, f"{what}: margin {best - second} for {margin} at {at}"
        if margin > SAFE:
            safe += 1
            assert score[0].argmax() == ids[at], f"{what}: {score[0].argmax()} for {ids[at]} at {at}"
    return safe


def run_loop(
    bench: LanguageBench,
    prompts: list[list[int]],
    embeddings: np.ndarray,
    sampling: FirstStageSampling,
    limits: list[int],
    end: int,
    noise: list[Any] | None = None,
) -> list[np.ndarray]:
    """Prompt and new ids of texts in the side's own slots."""
    every = zip(prompts, embeddings, noise or [NOTHING] * len(prompts), strict=True)
    texts = [
        MetaVoiceInputs(np.array(ids, np.int32), vector, sampling, source) for ids, vector, source in every
    ]
    end_of_text = bench.tokenizers.first_stage.end_of_text
    return bench.side.speak(bench.side.first, texts, limits, end_of_text=end_of_text, end=end)


def check_prefix(what: str, own: np.ndarray, golden: list[int], margins: list[float]) -> None:
    """Require equality up to the first step with an unsafe margin, or to the end."""
    unsafe = next((i for i, margin in enumerate(margins) if margin <= SAFE), None)
    count = len(golden) if unsafe is None else len(golden) - len(margins) + unsafe
    if unsafe is None:
        assert own.tolist() == golden, what
    assert own[:count].tolist() == golden[:count], what


def check_sampler(bench: LanguageBench) -> None:
    """Only the rules, in NumPy and on the side under test."""
    vectors, logits = bench.vectors, bench.vectors["sampler.logits"]
    floor = bench.settings["sampler.fast"]["temperature_floor"]
    assert floor == LOWEST_TEMPERATURE
    for number, case in enumerate(bench.info["sampler"]):
        golden, row = vectors[f"sampler.fast{number}"], logits[case["row"]]
        given = case["temperature"], case["top_p"], case["top_k"]
        settings = FirstStageSampling(1.0, 1.0, max(case["temperature"], floor), *given[1:])
        side = bench.side.probabilities(row[None], settings)[0]
        for own in (rules.probabilities_fast(row, *given), side):
            if case["tied_cut"]:  # upstream does not define which of equal numbers stays
                own, golden = np.sort(own), np.sort(golden)
            np.testing.assert_allclose(own, golden, rtol=1e-5, atol=1e-7, err_msg=f"sampler.fast{number}")
    exps = rules.softmax(logits)
    for top_p in bench.settings["sampler.slow_top_p"]["top_p"]:
        golden = vectors[f"sampler.slow_top_p_{top_p}"]
        side = bench.side.probabilities(logits, FirstStageSampling(1.0, 1.0, 1.0, top_p, rule="slow"))
        for own in (rules.keep_top_p(exps, top_p), side):
            _assert_but_for_ties(own, golden, exps, f"sampler.slow_top_p_{top_p}")
    given = bench.settings["sampler.cfg"]
    rows = list(vectors["sampler.cfg_logits"][:, -1])
    for scale in given["guidance"]:
        sampling = fast_sampling({**given, "guidance": scale})
        golden = vectors[f"sampler.cfg_{scale}"]
        own = rules.probabilities_fast(
            rules.guide(rows, scale), sampling.temperature, sampling.top_p, sampling.top_k
        )
        np.testing.assert_allclose(own, golden, rtol=1e-5, atol=1e-7, err_msg=f"sampler.cfg_{scale}")
        own = bench.side.probabilities(bench.side.guided(rows, sampling), sampling)
        np.testing.assert_allclose(own, golden, rtol=1e-5, atol=1e-7, err_msg=f"sampler.cfg_{scale}")
    waiting, settings = vectors["sampler.q"], FirstStageSampling(1.0, 1.0, 1.0, None).numbers
    uniform = np.exp(-waiting.astype(np.float64)).reshape(1, -1)
    for own in (rules.race(exps[0], waiting), draw(bench.side, SAMPLER, [logits[:1]], settings, uniform)):
        assert own == vectors["sampler.q_argmax"][0], "sampler.q_argmax"


def _assert_but_for_ties(own: np.ndarray, golden: np.ndarray, source: np.ndarray, what: str) -> None:
    """Require equal rows; among equal numbers at the edge only their count."""
    for row, (mine, theirs) in enumerate(zip(own, golden, strict=True)):
        edge = source[row][theirs > 0].min()
        if ((source[row] == edge) & (theirs == 0)).any():
            mine, theirs = np.sort(mine), np.sort(theirs)
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-7, err_msg=f"{what}, row {row}")


def check_slow(bench: LanguageBench) -> None:
    """Batches of unequal prompts under every kind of guidance, and one step's probabilities."""
    meta, vectors = bench.info["slow_meta"], bench.vectors
    prompts, end = meta["prompts"], meta["end_of_audio_token"]
    assert bench.tokenizers.first_stage.end_of_text == meta["end_of_text_token"]
    embeddings, given = vectors["slow.spk"][:, 0], bench.settings["slow"]
    shortest = min(map(len, prompts))
    total = shortest + meta["max_new_tokens"]
    for kind, guidance in given["guidance"].items():
        sampling = slow_sampling({**given, "guidance": guidance or (1.0, 1.0)})
        golden = bench.info["slow"][f"{kind}_kv0"]
        assert golden == bench.info["slow"][f"{kind}_kv1"], f"slow.{kind}: upstream's cache changed tokens"
        margins = bench.info["slow_margins"][kind]
        assert [len(row) for row in margins] == [total - len(p) for p in prompts], f"slow_margins.{kind}"
        own = run_loop(bench, prompts, embeddings, sampling, [total - len(p) for p in prompts], end)
        _check_slow_forced(
            bench, f"slow.{kind}", prompts, np.array(golden), margins, embeddings, sampling, end
        )
        for item, row in enumerate(own):
            filled = np.pad(row, (0, total - len(row)), constant_values=given["pad"])
            needed = margins[item][: len(row) - len(prompts[item])]
            check_prefix(f"slow.{kind}, row {item}", filled[: len(row)], golden[item][: len(row)], needed)
            if min(needed) > SAFE:
                assert filled.tolist() == golden[item], f"slow.{kind}, row {item}"

    given = bench.settings["slow.step_probs"]
    sampling = slow_sampling(given)
    prompt = np.array([bench.info["prompt"]], np.int32)

    def step_probs(networks: Networks) -> np.ndarray:
        side = networks
        step = side.step(
            networks.first,
            vectors["spk_emb"],
            sampling,
            room=prompt.shape[1],
            end_of_text=bench.tokenizers.first_stage.end_of_text,
        )
        return side.probabilities(side.guided(list(side.rows(step, prompt)), sampling), sampling)

    bench.compare("slow.step_probs", vectors["slow.step_probs"], step_probs)


def _check_slow_forced(
    bench: LanguageBench,
    what: str,
    prompts: list[list[int]],
    golden: np.ndarray,
    margins: list[list[float]],
    embeddings: np.ndarray,
    sampling: FirstStageSampling,
    end: int,
) -> None:
    """Every column after the golden ones. margins: of each row, from the end of its prompt on."""
    side, start = bench.side, min(map(len, prompts))
    step = side.step(
        bench.side.first,
        embeddings,
        sampling,
        room=golden.shape[1],
        end_of_text=bench.tokenizers.first_stage.end_of_text,
    )
    for at in range(start, golden.shape[1]):
        columns = golden[:, :start] if at == start else golden[:, at - 1 : at]
        picked = side.guided(list(side.rows(step, columns.astype(np.int32))), sampling).argmax(axis=-1)
        for item, prompt in enumerate(prompts):
            if at < len(prompt):
                assert golden[item, at] == prompt[at], f"{what}: prompt of row {item} at {at}"
            elif end in golden[item, len(prompt) : at]:
                assert golden[item, at] == end, f"{what}: row {item} goes on after its end at {at}"
            elif margins[item][at - len(prompt)] > SAFE:
                assert picked[item] == golden[item, at], f"{what}: row {item} at {at}"

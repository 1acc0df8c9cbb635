"""Checks of the golden files of MARS5's autoregressive network."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from tests.draws import only, score
from tests.golden.bench import Bench
from tests.golden.cases import Vectors, _Info, existing
from tests.golden.mars5_ar_bench import ArSide, ar_part, ar_side, read_vocabulary
from tts_core.mars5.inputs import PENALTIES_ABOVE, SAMPLER, allowed_ids, end_penalties, numbers
from tts_core.mars5.options import Mars5Options
from tts_core.mars5.tokens import SPEECH_FILE, TEXT_FILE, CodecPrompt, CodecVocabulary
from tts_core.nn.noise import HostNoise

DEFAULT_MAX_LEN = 2000  # of the runs whose caches ar_forward has
RENAMED = {"nar_guidance_w": "cfg_scale"}  # names of the original → ours
OURS = {  # options that the original's configuration lacks; deep_clone is given by each run
    *("seed", "max_seconds", "max_frames", "piece_seconds", "as_written", "deep_clone", "speed", "noise"),
    "draws",
}
SETTINGS: set[str] = (
    {field.name for field in fields(Mars5Options)} - OURS - {*RENAMED.values()}
) | RENAMED.keys()


def options_of(given: Any, **changes: Any) -> Mars5Options:
    """Convert a golden file's configuration, with the original's names, into options."""
    named: dict[str, Any] = {RENAMED.get(name, name): given[name] for name in SETTINGS if name in given}
    return Mars5Options(**named | changes)


def read_info(file: Path) -> Any:
    """Read a JSON file; a missing key fails with its name."""
    return json.loads(existing(file).read_text(), object_hook=lambda found: _Info(found, file))


def ar_bench(side: str, folder: Path, name: str, window: int | None = None) -> Bench[ArSide]:
    return Bench.load(side, lambda kind: ar_side(kind, folder, name, window))


def check_tokens(folder: Path) -> None:
    """tok_pairs.json against the two tokenizer files beside it."""
    pairs = read_info(folder / "tok_pairs.json")
    texts = [existing(folder / name).read_text(encoding="utf-8") for name in (TEXT_FILE, SPEECH_FILE)]
    stats = pairs["stats"]
    vocabulary = CodecVocabulary.read(*texts, vocab_size=stats["n_vocab"])
    text, speech = vocabulary.text, vocabulary.speech
    sizes = {
        "len_texttok_vocab": text.size,
        "len_speechtok_vocab": speech.size,
        "n_text": vocabulary.first_speech,
        "n_speech": speech.size,
        "n_vocab": vocabulary.size,
        "n_text_vocab_nar": text.size + 1,
        "text_special_tokens": text.specials,
        "speech_special_tokens": speech.specials,
    }
    assert stats == sizes
    for case in pairs["text"]:
        assert text.encode(case["in"]) == case["ids"], case["in"]
        assert text.decode(case["ids"]) == case["decoded"], case["in"]
    for case in pairs["text_special"]:
        assert text.encode(case["in"]) == case["ids"], case["in"]
        assert text.decode(case["ids"]) == case["decoded"], case["in"]
    for case in pairs["speech"]:
        assert speech.encode(case["codes"]) == case["ids"]
        assert speech.decode(case["ids"]) == case["codes"]
        assert "".join(f" {code:04d}" for code in speech.decode(case["ids"])) == case["decoded"]
    for case in pairs["decode_int"]:
        assert speech.decode(case["ids"]) == case["out"]
    assert len(pairs) == 5, f"{folder}: tok_pairs.json has sections that nothing reads: {', '.join(pairs)}"


def check_checkpoint(folder: Path, name: str) -> None:
    """Compare the sizes in a checkpoint's JSON file with its tokenizers', which are also files beside it."""
    beside, vocabulary = read_info(folder / f"{name}.json"), read_vocabulary(folder, name)
    sizes = vocabulary.first_speech, vocabulary.speech.size, vocabulary.size, vocabulary.end
    assert sizes == tuple(beside[key] for key in ("n_text", "n_speech", "n_vocab", "eos_id"))
    for file in (TEXT_FILE, SPEECH_FILE):
        assert existing(folder / file).read_text("utf-8") == ar_part(folder, name).documents[file]


def prompt_of(vocabulary: CodecVocabulary, info: Any, case: Any, codes: np.ndarray) -> CodecPrompt:
    """codes: (P, Q)."""
    if case["n_speech_prompt_ids"] == 0:
        return vocabulary.shallow(info["text"])
    return vocabulary.deep(info["text"], info["ref_transcript"], codes[:, 0])


def check_forward(folder: Path, side: str) -> None:
    """ar_forward: the speaker vector, hidden states and logits, with and without a cache."""
    info, vectors = read_info(folder / "ar_forward.json"), Vectors(folder / "ar_forward.safetensors")
    name = info["checkpoint"]
    bench, vocabulary = ar_bench(side, folder, name), read_vocabulary(folder, name)
    codes, padded = vectors[info["ref_codes"]], vectors["ref_codes_padded"]
    assert len(codes) == info["ref_frames"]
    assert vocabulary.first_speech == info["n_text"]
    assert bench.side.network.config.codebook_rows - 1 == info["ref_pad_id"]
    assert (padded[:, 0] == info["ref_pad_id"]).argmax() == info["padded_valid_frames"]
    bench.compare("spk_emb", vectors["spk_emb"], lambda s: s.speaker(codes))
    bench.compare("spk_emb_padded", vectors["spk_emb_padded"], lambda s: s.speaker(padded))
    for label, case in info["cases"].items():
        tokens, prompt = vectors[case["tokens"]], case["n_prompt"]
        assert tokens.shape[1] == prompt + case["n_forced"]
        if f"{label}.n_prompt" in vectors:
            assert vectors[f"{label}.n_prompt"] == prompt
        expected = prompt_of(vocabulary, case, case, codes)
        np.testing.assert_array_equal(expected.tokens, tokens[0, :prompt], err_msg=label)
        assert len(expected.tokens) - expected.text_tokens == case["n_speech_prompt_ids"]
        bench = ar_bench(side, folder, name, case["sliding_window"])
        capacity = prompt + DEFAULT_MAX_LEN
        cache = bench.side.network.new_cache(capacity)
        assert [rows.capacity for rows in cache] == [case["cache_len"]] * len(cache)
        first = case["logits_nocache_first_index"]
        bench.compare(
            f"{label}.logits_nocache",
            vectors[f"{label}.logits_nocache"],
            lambda s, t=tokens, f=first: s.forward(codes, t)[:, f:],
        )
        assert case["logits_cached_first_index"] == prompt - 1
        bench.compare(
            f"{label}.logits_cached",
            vectors[f"{label}.logits_cached"],
            lambda s, t=tokens, p=prompt, c=capacity: s.stepped(codes, t, p, c),
        )
        if case["hidden_states"]:
            for layer in range(bench.side.network.config.num_hidden_layers):
                at = f"{label}.h_after_layer{layer}"
                bench.compare(at, vectors[at], lambda s, t=tokens, n=layer: s.hidden(codes, t)[n])
    vectors.assert_all_read()


class Recorded:
    """The golden draws' numbers; a seed's numbers for other draws."""

    def __init__(self, numbers: np.ndarray | None):
        self.numbers = numbers

    def uniform(self, step: int, shape: tuple[int, ...]) -> np.ndarray:
        if self.numbers is None:
            return HostNoise(0).uniform(step, shape)
        number = self.numbers[step] if step < len(self.numbers) else 0.5  # launched ahead, never read
        return np.full(shape, number)


def check_generate(folder: Path, side: str) -> None:
    """ar_generate: whole runs, with every distribution that an id was drawn from."""
    info, vectors = read_info(folder / "ar_generate.json"), Vectors(folder / "ar_generate.safetensors")
    name = info["checkpoint"]
    bench, vocabulary = ar_bench(side, folder, name), read_vocabulary(folder, name)
    file, key = info["ref_codes"].split(":")
    codes = Vectors(folder / file)[key]
    ids = vocabulary.first_speech, vocabulary.size, vocabulary.end, vocabulary.first_speech, vocabulary.lowest
    keys = "n_text", "n_vocab", "eos_id", "first_speech_id", "lowest_allowed_id"
    assert ids == tuple(info[at] for at in keys)
    assert info["penalties_if_n_generated_above"] == PENALTIES_ABOVE
    assert bench.side.network.config.sliding_window == info["sliding_window"]
    for label, run in info["runs"].items():
        check_run(label, run, info, vectors, bench, vocabulary, codes)
    np.testing.assert_array_equal(vocabulary.codes(vectors["parse_quirk.in"]), vectors["parse_quirk.codes"])
    vectors.assert_all_read()


def check_run(
    label: str,
    run: Any,
    info: Any,
    vectors: Vectors,
    bench: Bench[ArSide],
    vocabulary: CodecVocabulary,
    codes: np.ndarray,
) -> None:
    """One run of the loop on the side under test, and on the two that bound its distributions."""
    prompt = prompt_of(vocabulary, info, run, codes)
    assert (run["n_speech_prompt_ids"] > 0) == run["deep"]
    np.testing.assert_array_equal(prompt.tokens, vectors[f"{label}.prompt"], err_msg=label)
    assert len(prompt.tokens) == run["n_prompt"]
    assert prompt.first_code == run["first_codec_idx"] == vectors[f"{label}.first_codec_idx"]
    assert prompt.expected_tokens == run["n_est"]
    picks, places = vectors[f"{label}.picks"], vectors[f"{label}.filtered_nz"]
    numbers = vectors[f"{label}.u"] if run["choice"] == "inverse_cdf" else None
    at = run["forced_eos_step"]
    forced = {} if at is None else {at: vocabulary.end}
    options = options_of(run, generate_max_len_override=run["max_len"])

    def distributions(side: ArSide) -> np.ndarray:
        sequence, probs = side.generate(codes, prompt, vocabulary, options, Recorded(numbers), forced=forced)
        drawn = [*sequence.generated, *[vocabulary.end] * (sequence.finish_reason == "stop")]
        assert drawn == picks.tolist(), f"{label}, {side.kind}: ids"
        assert (sequence.finish_reason == "stop") == (at is not None)
        np.testing.assert_array_equal(sequence.ids, vectors[f"{label}.output"], err_msg=label)
        np.testing.assert_array_equal(sequence.codes(), vectors[f"{label}.l0_codes"], err_msg=label)
        kept = np.argwhere(np.stack(probs) > 0)
        np.testing.assert_array_equal(kept, places, err_msg=f"{label}, {side.kind}: what was kept")
        return np.stack(probs)[places[:, 0], places[:, 1]]

    assert np.bincount(places[:, 0]).tolist() == run["kept_per_step"]
    bench.compare(f"{label}.filtered_p", vectors[f"{label}.filtered_p"], distributions)
    if numbers is not None:
        tokens = vectors[f"{label}.output"][None]
        last = run["n_prompt"] - 1
        bench.compare(
            f"{label}.raw_logits",
            vectors[f"{label}.raw_logits"],
            lambda s: s.stepped(codes, tokens, last + 1, run["max_len"])[0],
        )


def check_samplers(folder: Path, side: str) -> None:
    """samplers: every single filter and the whole chain, without a network."""
    info, vectors = read_info(folder / "samplers.json"), Vectors(folder / "samplers.safetensors")
    bench = Bench.load(side, lambda kind: ArSide(kind, None))
    assert info["penalties_if_n_generated_above"] == PENALTIES_ABOVE
    previous = vectors["previous"]
    shape = (info["batch"], info["vocab_size"])
    assert previous.shape == (info["batch"], info["n_previous"])
    for label, case in info["cases"].items():
        logits, golden = vectors[case["input"]], vectors[label]
        assert logits.shape == golden.shape == shape
        assert case["result"] == ("log_probabilities" if case["kind"] == "chain" else "logits")

        def run(s: ArSide, case: Any = case, logits: np.ndarray = logits) -> np.ndarray:
            return filtered(s, case, logits, previous)

        kept = golden > -np.inf
        for one in {bench.side, bench.torch32, bench.torch64}:
            np.testing.assert_array_equal(run(one) > -np.inf, kept, err_msg=f"{label}, {one.kind}: kept")
        finite = np.where(kept, golden, np.float32(0))
        bench.compare(label, finite, lambda s, r=run, k=kept: np.where(k, r(s), 0).astype(r(s).dtype))
    vectors.assert_all_read()


RULES = {  # by kind of filter
    "freq_rep": ("freq_penalty", "presence_penalty"),
    "eos": ("end_penalty",),
    "topk_topp": ("top_k", "top_p"),
    "typical": ("typical_p",),
    "typical_after_topk8": ("top_k", "top_p", "typical_p"),
}


def filtered(side: ArSide, case: Any, logits: np.ndarray, previous: np.ndarray) -> np.ndarray:
    """One case's filter on one side. (B, V) → same."""
    kind, options = case["kind"], options_of(case)
    seen = previous[:, -options.rep_penalty_window :]
    if kind == "chain" and not case["penalties_apply"]:
        seen = seen[:, :0]
    counts = np.stack([np.bincount(row, minlength=logits.shape[1] + 1) for row in seen])[:, : logits.shape[1]]
    inputs: dict[str, Any] = {"counts": counts.astype(np.float32)}
    if kind in ("eos", "chain"):
        penalty = end_penalties(options, case["n_est"], case["n_generated"] + 1)[-1]
        inputs |= {"penalty": penalty.reshape(1, 1), "end": case["eos_id"]}
    if kind == "chain":
        assert case["penalties_apply"] == (case["n_generated"] > PENALTIES_ABOVE)
        assert case["lowest_allowed_id"] == case["first_speech_id"] - 1
        inputs["allowed"] = allowed_ids(logits.shape[1], case["lowest_allowed_id"])
    sampler = SAMPLER if kind == "chain" else only(SAMPLER, *RULES[kind])
    scores = score(side, sampler, [logits], numbers(options), **inputs)
    if kind != "chain":
        return scores
    highest = scores.max(axis=-1, keepdims=True)
    return scores - highest - np.log(np.exp(scores - highest).sum(axis=-1, keepdims=True))

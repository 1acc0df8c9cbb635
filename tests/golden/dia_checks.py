"""Checks of Dia's golden files, in order from the text to the whole loop."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import partial

import numpy as np

from tests.golden.bench import Bench
from tests.golden.cases import Case, Vectors
from tests.golden.dia_bench import DiaSide, dia_bench
from tests.tolerance import assert_within
from tts_core.dia.config import DiaConfig, read_published
from tts_core.dia.grid import FREE, DelayGrid, apply_delay
from tts_core.dia.text import tokenize


def check_dia(case: Case, side: str) -> None:
    """A case of kind `dia` on one side."""
    vectors, info = case.vectors(), case.info
    bench = dia_bench(side, case.path(info["weights"]), case.path(info["config"]))
    config = bench.side.config
    assert config.generation == info["generation"], f"{case}: read as {config.generation}"
    prompts = read_prompts(case, vectors)
    {"nari": _check_nari, "transformers": _check_transformers}[info["layout"]](case, vectors, bench, prompts)
    vectors.assert_all_read()


def read_prompts(case: Case, vectors: Vectors) -> list[np.ndarray | None]:
    """Read (C, P) codes for each text, from the case's own file or its twin's."""
    info = case.info
    assert len(info["prompts"]) == len(info["texts"]), f"{case}: info.json has not one prompt entry per text"
    prompts: list[np.ndarray | None] = []
    for item, frames in enumerate(info["prompts"]):
        name = f"prompt_codes.{item}"
        if frames is None:
            prompts.append(None)
            continue
        source = (
            vectors
            if name in vectors or "twin" not in info
            else Vectors(case.path(info["twin"]) / "golden.safetensors")
        )
        codes = source[name]
        assert len(codes) == frames, f"{source.file}: {name} has {len(codes)} frames, info.json says {frames}"
        prompts.append(codes.T)
    return prompts


def _check_nari(
    case: Case, vectors: Vectors, bench: Bench[DiaSide], prompts: list[np.ndarray | None]
) -> None:
    info, config = case.info, bench.side.config
    ids = [tokenize(text) for text in info["texts"]]
    required = ["text_tokens", "cross_mask", "encoder_out", "delayed_prefill", "prefill_steps"]
    required += [f"greedy.{name}" for name in ("generated_tokens", "delayed_slice", "lengths")]
    required += [f"greedy.codes.{item}" for item in range(len(ids))]
    # all of a set, or none
    if any(name.startswith(("tf.", "cross_k.", "cross_v.")) for name in vectors.names):
        required += ["cross_k.0", "cross_v.0"]
        required += [
            f"tf.{name}" for name in ("tokens", "prefill_logits", "step_logits", "self_k.0", "self_v.0")
        ]
    vectors.require(required)

    _check_padded("text_tokens", vectors["text_tokens"], ids)
    mask = vectors["cross_mask"].reshape(
        len(ids), 2, -1
    )  # the unconditional row has the conditional text's mask
    for item, tokens in enumerate(ids):
        assert (mask[item] == (np.arange(mask.shape[-1]) < len(tokens))).all(), f"cross_mask: text {item}"
    _check_nari_prefill(config, vectors, prompts)
    _check_encoded(bench, ids, vectors["encoder_out"][1::2], vectors["encoder_out"][0::2])
    _check_cross(bench, ids, vectors)
    if "tf.tokens" in vectors:
        _check_teacher_forced(bench, ids, vectors)
    _check_nari_greedy(case, vectors, bench, prompts)


def _check_padded(name: str, rows: np.ndarray, ids: Sequence[np.ndarray]) -> None:
    width = rows.shape[1]
    expected = np.stack([np.pad(tokens, (0, width - len(tokens))) for tokens in ids])
    np.testing.assert_array_equal(rows, expected, err_msg=name)


def _check_nari_prefill(config: DiaConfig, vectors: Vectors, prompts: list[np.ndarray | None]) -> None:
    steps = [1 + frames_of(prompt) for prompt in prompts]
    assert vectors["prefill_steps"].tolist() == steps, "prefill_steps"
    golden = vectors["delayed_prefill"]
    longest = max(map(frames_of, prompts))
    expected = np.full_like(golden, FREE)
    for known, prompt in zip(expected, prompts, strict=True):
        grid = DelayGrid(config, prompt, 1, last_channel_free=frames_of(prompt) == longest)
        rows = min(len(known), len(grid.rows))
        known[:rows] = grid.rows[:rows]
    np.testing.assert_array_equal(golden, expected, err_msg="delayed_prefill")


def _check_encoded(
    bench: Bench[DiaSide], ids: Sequence[np.ndarray], cond: np.ndarray, uncond: np.ndarray
) -> None:
    """cond, uncond: (B, S, D). Padding's encoding is not defined; a text of zeros gives one vector."""
    for item, tokens in enumerate(ids):
        bench.compare(
            f"encoder, text {item}", cond[item, : len(tokens)], lambda side, t=tokens: side.encode_text(t)
        )
        zeros = np.zeros(uncond.shape[1], np.int32)
        bench.compare(
            f"encoder, unconditional, text {item}", uncond[item], lambda side, z=zeros: side.encode_text(z)
        )
        collapsed = np.repeat(bench.side.encode_text(zeros[:1]), len(zeros), axis=0)
        known, truth = bench.torch32.encode_text(zeros), bench.torch64.encode_text(zeros)
        assert_within(collapsed, known, truth, "encoder, unconditional from one token")


def _check_cross(bench: Bench[DiaSide], ids: Sequence[np.ndarray], vectors: Vectors) -> None:
    """Both rows at the text's positions only: the others are masked, and v0.1 has zeros for keys there."""
    for name in vectors.names:
        match = re.fullmatch(r"cross_([kv])\.(\d+)", name)
        if not match:
            continue
        which, layer = "kv".index(match[1]), int(match[2])
        golden = vectors[name].reshape(len(ids), 2, *vectors[name].shape[1:])  # (B, 2, K, S, E)

        def cross(side: DiaSide, tokens: np.ndarray, layer: int = layer, which: int = which) -> np.ndarray:
            return side.cross(tokens, layer)[which]

        for item, tokens in enumerate(ids):
            uncond, cond = golden[item, :, :, : len(tokens)]
            bench.compare(f"{name}, text {item}", cond, partial(cross, tokens=tokens))
            zeros = np.zeros_like(tokens)
            bench.compare(f"{name}, unconditional, text {item}", uncond, partial(cross, tokens=zeros))


def _check_teacher_forced(bench: Bench[DiaSide], ids: Sequence[np.ndarray], vectors: Vectors) -> None:
    tokens, prefill, steps = vectors["tf.tokens"], vectors["tf.prefill_logits"], vectors["tf.step_logits"]
    first = tokens.shape[1] - steps.shape[1]  # rows that went in at once
    golden = np.concatenate([prefill, steps], axis=1).reshape(len(ids), 2, -1, *steps.shape[2:])
    caches = [(name, re.fullmatch(r"tf\.self_([kv])\.(\d+)", name)) for name in vectors.names]
    for item, text in enumerate(ids):
        memory: dict[int, tuple] = {}

        def run(side: DiaSide, item: int = item, text: np.ndarray = text, memory: dict = memory) -> tuple:
            if id(side) not in memory:
                memory[id(side)] = side.teacher_forced(text, tokens[item], first)
            return memory[id(side)]

        for name, match in caches:
            if match:
                which, layer = "kv".index(match[1]), int(match[2])
                rows = vectors[name].reshape(len(ids), 2, *vectors[name].shape[1:])[item]
                bench.compare(f"{name}, text {item}", rows, lambda s, n=layer, w=which: run(s)[1][n][w])
        since = tokens.shape[1] - golden.shape[2]
        bench.compare(f"tf logits, text {item}", golden[item], lambda s, a=since: run(s)[0][:, a:])


def _check_nari_greedy(
    case: Case, vectors: Vectors, bench: Bench[DiaSide], prompts: list[np.ndarray | None]
) -> None:
    info, config = case.info, bench.side.config
    settings, lengths = info["generate"], vectors["greedy.lengths"].tolist()
    assert settings["temperature"] == 0, f"{case}: not greedy"
    assert lengths == info["lengths"], f"{case}: greedy.lengths {lengths}, info.json has {info['lengths']}"
    # max_tokens counts all rows of the grid: BOS, the prompt and the longest delay included
    limits = [settings["max_tokens"] - config.longest_delay - 1 - frames_of(prompt) for prompt in prompts]
    codes = bench.side.pipeline.generate_codes(
        info["texts"],
        prompts,
        temperature=0.0,
        cfg_scale=settings["cfg_scale"],
        top_k=settings["cfg_filter_top_k"],
        max_frames=[max(1, frames) for frames in limits],
        last_channel_free=True,
    )
    grid, delayed = vectors["greedy.generated_tokens"], vectors["greedy.delayed_slice"]
    longest, last = max(map(frames_of, prompts)), np.array(config.delay_pattern) == config.longest_delay
    for item, (own, prompt) in enumerate(zip(codes, prompts, strict=True)):
        golden = vectors[f"greedy.codes.{item}"].T
        assert golden.shape[1] == lengths[item], f"{case}: greedy.codes.{item}: {golden.shape}"
        if lengths[item] == 0:  # upstream takes an EOS inside a neighbour's longer prompt for this text's end
            continue
        assert_same_codes(f"{case}: greedy.codes.{item}", own, golden)
        rows = whole_grid(config, prompt, own)[: 1 + frames_of(prompt) + lengths[item] + config.longest_delay]
        known = np.ones(rows.shape, bool)
        if frames_of(prompt) == longest:
            known[longest + config.longest_delay, last] = False  # the slot that upstream leaves empty
        found = grid[item, : len(rows)]
        np.testing.assert_array_equal(
            found[known], rows[known], err_msg=f"{case}: greedy.generated_tokens {item}"
        )
        assert (found >= 0).all(), f"{case}: greedy.generated_tokens {item} has unfilled rows"
        speech = found[1 + frames_of(prompt) :]
        np.testing.assert_array_equal(
            delayed[item, : len(speech)], speech, err_msg=f"{case}: greedy.delayed_slice {item}"
        )
    if all(lengths):
        end = max(1 + frames_of(p) + n + config.longest_delay for p, n in zip(prompts, lengths, strict=True))
        assert (grid[:, end:] == FREE).all(), f"{case}: greedy.generated_tokens goes on after the last row"


def _check_transformers(
    case: Case, vectors: Vectors, bench: Bench[DiaSide], prompts: list[np.ndarray | None]
) -> None:
    info, config = case.info, bench.side.config
    ids = [tokenize(text) for text in info["texts"]]
    required = ["input_ids", "attention_mask", "decoder_input_ids", "decoder_attention_mask"]
    required += ["generate.sequences", "encoder_out_cond", "encoder_out_uncond"]
    required += [f"generate.codes.{item}" for item in range(len(ids))]
    vectors.require(required)
    for file in case.folder.glob("config*.json"):  # the same network as older and newer files describe it
        assert read_published(json.loads(file.read_text())) == config, f"{file} reads differently"

    _check_padded("input_ids", vectors["input_ids"], ids)
    _check_padded("attention_mask", vectors["attention_mask"], [np.ones_like(tokens) for tokens in ids])
    _check_transformers_prefill(config, vectors, prompts)
    _check_encoded(bench, ids, vectors["encoder_out_cond"], vectors["encoder_out_uncond"])

    settings = info["generate"]
    assert not settings["do_sample"], f"{case}: not greedy"
    scale = settings["guidance_scale"]
    codes = bench.side.pipeline.generate_codes(
        info["texts"],
        prompts,
        temperature=0.0,
        cfg_scale=0.0 if scale is None or scale == 1 else scale,  # 1 is how transformers says "off"
        top_k=settings["top_k"],
        max_frames=settings["max_new_tokens"] - config.longest_delay - 1,
    )
    sequences = vectors["generate.sequences"]
    longest = max(map(frames_of, prompts))
    for item, (own, prompt) in enumerate(zip(codes, prompts, strict=True)):
        golden = vectors[f"generate.codes.{item}"].T
        assert golden.shape[1] == info["frames"][item], f"{case}: generate.codes.{item}: {golden.shape}"
        assert_same_codes(f"{case}: generate.codes.{item}", own, golden)
        left = longest - frames_of(prompt)  # shorter prompts are at the right, after rows of BOS
        rows = whole_grid(config, prompt, own, rows=sequences.shape[1], left=left)
        np.testing.assert_array_equal(sequences[item], rows, err_msg=f"{case}: generate.sequences {item}")


def _check_transformers_prefill(
    config: DiaConfig, vectors: Vectors, prompts: list[np.ndarray | None]
) -> None:
    rows, masks = processor_grid(config, prompts)
    np.testing.assert_array_equal(vectors["decoder_input_ids"], rows, err_msg="decoder_input_ids")
    np.testing.assert_array_equal(vectors["decoder_attention_mask"], masks, err_msg="decoder_attention_mask")


def processor_grid(config: DiaConfig, prompts: Sequence[np.ndarray | None]) -> tuple[np.ndarray, np.ndarray]:
    """transformers' processor's view of prompts: BOS rows at the left, codes, PAD where free; delayed.

    → (B, T, C) ids and (B, T) mask.
    """
    longest, channels = max(map(frames_of, prompts)), config.decoder_config.num_channels
    masks, rows = [], []
    for prompt in prompts:
        left = longest - frames_of(prompt)
        frames = np.full((channels, longest + 1), config.bos_token_id)
        if prompt is not None:
            frames[:, 1 + left :] = prompt
        rows.append(apply_delay(frames, config.delay_pattern, config.bos_token_id, config.pad_token_id).T)
        masks.append(np.arange(len(rows[0])) >= left)
    return np.stack(rows), np.stack(masks)


def frames_of(prompt: np.ndarray | None) -> int:
    """Frames of a (C, P) prompt."""
    return 0 if prompt is None else prompt.shape[1]


def whole_grid(
    config: DiaConfig, prompt: np.ndarray | None, codes: np.ndarray, *, rows: int = 0, left: int = 0
) -> np.ndarray:
    """A finished text: BOS, prompt and speech delayed, EOS after each channel's last code, then PAD. (T, C).

    rows: the least T.  left: rows of BOS before the text's own.
    """
    channels = config.decoder_config.num_channels
    bos, eos = np.full((channels, 1 + left), config.bos_token_id), np.full((channels, 1), config.eos_token_id)
    frames = np.concatenate([bos, *([] if prompt is None else [prompt]), codes, eos], axis=1)
    grid = apply_delay(frames, config.delay_pattern, config.bos_token_id, config.pad_token_id).T
    return np.pad(grid, ((0, max(0, rows - len(grid))), (0, 0)), constant_values=config.pad_token_id)


def assert_same_codes(what: str, own: np.ndarray, golden: np.ndarray) -> None:
    """Require equal (C, T) codes; name the first frame and channel that differ."""
    assert own.dtype == np.int32, f"{what}: {own.dtype}"
    frames = min(own.shape[1], golden.shape[1])
    wrong = np.argwhere((own[:, :frames] != golden[:, :frames]).T)
    at = (
        ""
        if not len(wrong)
        else f", first at frame {wrong[0][0]}, channel {wrong[0][1]} ({len(wrong)} in all)"
    )
    assert own.shape == golden.shape, f"{what}: shape {own.shape}, expected {golden.shape}{at}"
    assert not len(wrong), f"{what}: codes differ{at}"

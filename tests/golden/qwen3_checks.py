"""Checks of golden runs of Qwen3-TTS: layouts, every layer, logits, codes and sound."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tests.draws import score
from tests.golden.bench import Bench
from tests.golden.cases import Case, Vectors
from tests.golden.codec_bench import CodecSide, codec_bench
from tests.golden.qwen3_bench import ModelSide, model_bench, tokenizer
from tests.sides import Side
from tests.tolerance import EPS, FACTOR
from tts_core.files.json_object import read_json
from tts_core.nn.noise import HostNoise
from tts_core.prompt import Prompt
from tts_core.qwen3 import layout as layouts
from tts_core.qwen3 import speaker
from tts_core.qwen3.config import SUPPRESSED, Qwen3Config
from tts_core.qwen3.layout import (
    FIRST,
    OTHERS,
    Qwen3Choice,
    Qwen3Inputs,
    Qwen3Recording,
    Qwen3Sampling,
    TalkerInputs,
    allowed_ids,
    read_generation,
)

WHOLE = "non_streaming_mode"
CHUNK = "speech_tokenizer"


class Row(NamedTuple):
    """One text of a run."""

    at: str
    layout: TalkerInputs
    speaker: np.ndarray | None  # (D,)
    frames: np.ndarray | None  # (1, Q, T)
    seed: int | None


class Benches(NamedTuple):
    model: Bench[ModelSide]
    codec: Bench[CodecSide]

    @property
    def config(self) -> Qwen3Config:
        return self.model.side.network.config


def check_model(case: Case, side: str) -> None:
    """Check every run of a folder on one side."""
    benches = Benches(
        model_bench(side, case.folder),
        codec_bench(side, "qwen3_codec", case.folder / CHUNK / "model.safetensors"),
    )
    vectors, info = case.vectors(), case.info
    assert info["kind"] == f"qwen3_{benches.config.mode}"
    if "ref_rates" in info:
        _check_recordings(case, vectors, benches)
    for run in info["runs"]:
        _check_run(f"{case}: {run['name']}", case, run, vectors, benches)
    for frames, total, samples, cut in info.get("cuts", []):
        assert layouts.cut_of_recording(frames, total, samples) == cut, f"{case}: cut of {frames} in {total}"
    vectors.assert_all_read()


def _check_recordings(case: Case, vectors: Vectors, benches: Benches) -> None:
    encoder = benches.config.speaker_encoder
    assert encoder is not None
    for name, rate in case.info["ref_rates"].items():
        at, part = f"{case}: ref.{name}", f"ref.{name}"
        recording = Prompt.of(vectors[f"{part}.audio"], sample_rate=rate).one
        heard = recording.samples(encoder.sample_rate, at, shortest=0, quality="HQ")
        assert heard is not None
        np.testing.assert_array_equal(heard, _heard(vectors, name), f"{at}.resampled")
        own = benches.codec.side.encode(heard[None])[0].T
        np.testing.assert_array_equal(own, vectors[f"{part}.codes"], f"{at}.codes")
        _check_mel(f"{at}.mel", vectors[f"{part}.mel"], heard, encoder)
        mel = speaker.mel(heard, encoder)[None]
        compare = benches.model.compare
        compare(f"{at}.embedding", vectors[f"{part}.embedding"][None], partial(_speaker, mel=mel))
        for inner in [each for each in vectors.names if each.startswith(f"{part}.")]:
            stage = inner.removeprefix(f"{part}.")
            if stage.startswith(("block.", "mfa", "asp")):
                run = partial(_speaker_stage, mel=mel, stage=stage)
                compare(f"{at}.{stage}", vectors[inner][None], run)


def _heard(vectors: Vectors, name: str) -> np.ndarray:
    """A recording at the rate of the model."""
    resampled = f"ref.{name}.resampled"
    return vectors[resampled if resampled in vectors else f"ref.{name}.audio"]


def _check_mel(at: str, golden: np.ndarray, heard: np.ndarray, config: speaker.SpeakerConfig) -> None:
    """The original's float32 transform against ours in float64, by the rounding of amplitudes.

    A band's amplitude is off by a few units of its loudest frame's, so its logarithm by that much over it.
    """
    own = speaker.mel(heard, config)
    assert own.shape == golden.shape, at
    amplitude = np.exp(golden.astype(np.float64))
    loudest = amplitude.max(axis=1, keepdims=True)
    allowed = FACTOR * EPS * (1 + np.abs(golden) + loudest / amplitude)
    assert (np.abs(own - golden) <= allowed).all(), f"{at}: {np.abs(own - golden).max()}"


def _speaker(side: ModelSide, mel: np.ndarray) -> np.ndarray:
    with side.inference():
        return side.numpy(side.network.speaker_encoder(side.array(mel)))


def _speaker_stage(side: ModelSide, mel: np.ndarray, stage: str) -> np.ndarray:
    """(1, T, mel) → (1, C, T), a stage's output."""
    network = side.network.speaker_encoder
    x, outputs = side.channels(mel.swapaxes(1, 2)), []
    with side.inference():
        for block in network.blocks:
            x = block(x)
            outputs.append(side.from_channels(x))
        if stage.startswith("block."):
            return outputs[int(stage.removeprefix("block."))]
        x = network.mfa(side.channels(np.concatenate(outputs[1:], axis=1)))
        return side.from_channels(x if stage == "mfa" else network.asp(x))


def _listed(value: Any, rows: int) -> list[Any]:
    values = value if isinstance(value, list) else [value]
    return values * rows if len(values) == 1 else values


def _rows(
    at: str, case: Case, run: dict[str, Any], vectors: Vectors, codec: CodecSide, config: Qwen3Config
) -> list[Row]:
    """Lay out every text of a run from the arguments of the original's wrapper."""
    given, count = run["args"], len(run["input_ids"])
    texts, languages = _listed(given["text"], count), _listed(given.get("language"), count)
    names, instructions = _listed(given.get("speaker"), count), _listed(given.get("instruct"), count)
    transcripts = _listed(given.get("ref_text"), count)
    alone = _listed(given.get("x_vector_only_mode", False), count)
    read = tokenizer(case.folder, config.text_vocab_size)
    rows = []
    for b in range(count):
        text = read.encode(layouts.script(texts[b]))
        assert text == run["input_ids"][b], f"{at}, row {b}"
        voice, instruct, recording, vector, frames = layouts.NO_ID, [], None, None, None
        known = layouts.named_speaker(config, names[b]) if names[b] else None
        if known is not None:
            voice = known.id
        if instructions[b]:
            instruct = read.encode(layouts.instruction(instructions[b]))
            if run["instruct_ids"][b] is not None:
                assert instruct == run["instruct_ids"][b]
            instruct = instruct if config.takes_instruction else []
        if config.mode == "base":
            part, voice = f"ref.{run['ref'][b]}", layouts.SPEAKER
            vector = vectors[f"{part}.embedding"]
            if transcripts[b] is not None and not alone[b]:
                ids = read.encode(layouts.transcript(transcripts[b]))
                assert ids == run["ref_ids"][b], f"{at}, row {b}"
                frames = _recorded(run, b, vectors, codec)
                recording = Qwen3Recording(tuple(ids), frames.shape[2])
        language = layouts.language_id(config, languages[b], known)
        laid = layouts.build(
            config,
            text,
            language=language,
            voice=voice,
            instruction=instruct,
            recording=recording,
            streamed=not given.get(WHOLE, config.mode != "base"),
        )
        seed = None if run["seeds"] is None else run["seeds"][b]
        rows.append(Row(f"{at}, row {b}", laid, vector, frames, seed))
    return rows


def _recorded(run: dict[str, Any], b: int, vectors: Vectors, codec: CodecSide) -> np.ndarray:
    """Codes of a row's recording, (1, Q, T); those that are encoded together are padded to the longest."""
    if not run.get("together", False):
        return vectors[f"ref.{run['ref'][b]}.codes"].T[None]
    clips = [_heard(vectors, name) for name in run["ref"]]
    longest = max(map(len, clips))
    codes = codec.encode(np.stack([np.pad(clip, (0, longest - len(clip))) for clip in clips]))
    return codes[b : b + 1, :, : -(-len(clips[b]) // codec.codec.hop_length)]


def _sampling(case: Case, settings: dict[str, Any]) -> Qwen3Sampling:
    """The settings of a run, which info.json lists in full."""
    read_generation(read_json(case.path("generation_config.json")))
    first, others = (
        Qwen3Choice(
            not settings[sampled],
            *(settings[f"{prefix}{name}"] for name in ("temperature", "top_k", "top_p")),
        )
        for prefix, sampled in (("", "do_sample"), ("subtalker_", "subtalker_dosample"))
    )
    return Qwen3Sampling(first, others, settings["repetition_penalty"])


def _check_run(at: str, case: Case, run: dict[str, Any], vectors: Vectors, benches: Benches) -> None:
    part, config = run["name"], benches.config
    mask, code0, frames = (vectors[f"{part}.{name}"] for name in ("mask", "code0", "frames"))
    assert run["settings"]["eos_token_id"] == config.codec_eos_id
    assert code0.shape[1] == run["tokens"]
    sampling = _sampling(case, run["settings"])
    pad = vectors[f"{part}.pad_embed"][None]
    benches.model.compare(f"{at}.pad_embed", pad, lambda each: _texts(each, [config.tts_pad_id]))
    rows = _rows(at, case, run, vectors, benches.codec.side, config)
    most = run["settings"]["max_new_tokens"] - 1
    together = spoken(benches.model.side, rows, sampling, most)
    for b, row in enumerate(rows):
        _check_layout(row, b, part, vectors, benches, mask[b])
        codes = vectors[f"{part}.codes.{b}"]
        ways = (together[b], *spoken(benches.model.side, [row], sampling, most)) if b else (together[b],)
        for own in ways:
            np.testing.assert_array_equal(own, codes, f"{row.at}: codes")
            ended = len(own) < len(code0[b]) and code0[b][len(own)] == config.codec_eos_id
            assert ended or len(own) == most, row.at
        _check_steps(row, b, part, run, sampling, vectors, benches, code0[b], frames[b])
        _check_sound(row, vectors[f"{part}.wav.{b}"], codes, run["samples"][b], benches)


def _texts(side: ModelSide, ids: list[int]) -> np.ndarray:
    with side.inference():
        return side.numpy(side.network.talker.embed_text(side.array(np.array(ids, np.int32))))


def prompt_of(side: ModelSide, row: Row) -> Any:
    vector, frames = (None if each is None else side.array(each) for each in (row.speaker, row.frames))
    return side.network.talker.embed_layout(row.layout, vector, frames)


def _prompt_numbers(side: ModelSide, row: Row) -> np.ndarray:
    with side.inference():
        return side.numpy(prompt_of(side, row))[0]


def _check_layout(row: Row, b: int, part: str, vectors: Vectors, benches: Benches, mask: np.ndarray) -> None:
    golden = vectors[f"{part}.prompt"][b]
    length = int(mask.sum())
    assert mask[len(mask) - length :].all(), row.at
    assert length == len(row.layout.text), f"{row.at}: {len(row.layout.text)} positions, expected {length}"
    benches.model.compare(
        f"{row.at}: prompt", golden[len(mask) - length :], lambda x: _prompt_numbers(x, row)
    )
    trailing = vectors[f"{part}.trailing"][b]
    ids = [*row.layout.trailing]
    ids += [benches.config.tts_pad_id] * (len(trailing) - len(ids))
    benches.model.compare(f"{row.at}: trailing", trailing, lambda each: _texts(each, ids))


def spoken(side: ModelSide, rows: list[Row], sampling: Qwen3Sampling, most: int) -> list[np.ndarray]:
    """Speak rows together in slots. → (F, Q) codes each, F at most `most`."""
    room = most + max(len(row.layout.text) for row in rows)
    slots = side.module("qwen3.decoder").make_slots(side.network, texts=len(rows), capacity=room)
    for b, row in enumerate(rows):
        frames, noise = None if row.frames is None else row.frames[0], HostNoise(row.seed or 0)
        slots.join({b: Qwen3Inputs(row.layout, sampling, noise, row.speaker, frames)})
    made: dict[int, list[np.ndarray]] = {b: [] for b in range(len(rows))}
    while slots.rows.texts:
        [drawn] = slots.read(slots.launch(1))
        for b in list(slots.rows.texts):
            ended = drawn[b, 0] == side.network.config.codec_eos_id
            if not ended:
                made[b].append(drawn[b])
            if ended or len(made[b]) == most:
                slots.leave(b)
    shape = (-1, side.network.config.n_codebooks)
    return [np.array(frames, np.int32).reshape(shape) for frames in made.values()]


def _check_steps(
    row: Row,
    b: int,
    part: str,
    run: dict[str, Any],
    sampling: Qwen3Sampling,
    vectors: Vectors,
    benches: Benches,
    code0: np.ndarray,
    frames: np.ndarray,
) -> None:
    """All layers and logits that are stored, and how close each draw was, with the original's codes read."""
    bench, greedy = benches.model, row.seed is None
    noise = None if greedy else _noise(row, len(code0), benches.config)
    if f"{part}.uniform" in vectors:
        np.testing.assert_array_equal(noise, vectors[f"{part}.uniform"][b], f"{row.at}: uniform")
    known: dict[int, dict[str, np.ndarray]] = {}
    for side in (bench.side, bench.torch32, bench.torch64):
        if id(side) not in known:
            found = read_row(side, row, frames)
            known[id(side)] = found | _draws(side, found, code0, noise, sampling)

    def compare(name: str, golden: np.ndarray) -> None:
        finite = np.isfinite(golden)  # one candidate alone is infinitely better

        def tail(side: ModelSide) -> np.ndarray:
            made = known[id(side)][name]
            made = made[len(made) - len(golden) :]
            np.testing.assert_array_equal(np.isfinite(made), finite, f"{row.at}: {name}")
            return made[finite]

        bench.compare(f"{row.at}: {name}", golden[finite], tail)

    for name in ("logits", "stage_logits", "hidden", "margin0", "margin"):
        if f"{part}.{name}" in vectors and len(vectors[f"{part}.{name}"][b]):
            compare(name, vectors[f"{part}.{name}"][b])
    for name in ("count0", "count") if not greedy else ():
        off = known[id(bench.side)][name] - vectors[f"{part}.{name}"][b]
        # a logit at the edge of a filter may be on either side of it; single ones, says the goldens' README
        assert np.abs(off).max() <= 1, f"{row.at}: {name}"
        assert np.count_nonzero(off) <= max(1, off.size // 100), f"{row.at}: {name}"
    if not run["full"]:
        return
    length = len(row.layout.text)
    for name in vectors.names:
        at, _, index = name.rpartition(".")
        if at == f"{part}.layer":
            golden = vectors[name][b]
            bench.compare(
                f"{row.at}: layer.{index}",
                golden[len(golden) - length :],
                lambda side, name=f"layer.{index}": known[id(side)][name],
            )
        elif at == f"{part}.stage_layer":
            compare(f"stage_layer.{index}", vectors[name][b])


def _noise(row: Row, steps: int, config: Qwen3Config) -> np.ndarray:
    """All numbers of a row's draws. → (steps, V + (Q - 1) V')."""
    count = config.vocab_size + (config.n_codebooks - 1) * config.codebook_size
    noise = HostNoise(row.seed or 0)
    return np.stack([np.asarray(noise.uniform(step, (count,))) for step in range(steps)])


def read_row(side: ModelSide, row: Row, frames: np.ndarray) -> dict[str, np.ndarray]:
    """Read a prompt and given frames at once; the predictor reads all frames beside each other.

    frames: (steps - 1, Q).
    """
    talker, found = side.network.talker, dict[str, np.ndarray]()
    with side.inference():
        prompt = prompt_of(side, row)
        ids = [*row.layout.trailing]
        ids += [side.network.config.tts_pad_id] * (len(frames) - len(ids))
        texts = talker.embed_text(side.array(np.array(ids[: len(frames)], np.int32)))[None]
        codes = side.array(np.ascontiguousarray(frames.T[None]))
        length, cache = prompt.shape[1], talker.new_cache()
        x = _joined(side, [prompt, talker.embed_frames(codes) + texts])
        rotation = talker.rotary(0, x.shape[1])
        for i, layer in enumerate(talker.model.layers):
            x = layer(x, rotation, cache[i])
            found[f"layer.{i}"] = side.numpy(x)[0, :length]
        hidden = talker.model.norm(x)[:, length - 1 :]
        found["hidden"] = side.numpy(hidden)[0]
        found["logits"] = side.numpy(talker.logits(hidden))[0]
        found |= _stages(side, hidden[0, : len(frames)][:, None], frames)
    return found


def _stages(side: ModelSide, hidden: Any, frames: np.ndarray) -> dict[str, np.ndarray]:
    """Logits of all stages with given codes, (F, Q - 1, V'), and every layer at the first frame's positions.

    hidden: (F, 1, D).
    """
    talker, found = side.network.talker, dict[str, np.ndarray]()
    predictor, codes = talker.code_predictor, side.array(frames.astype(np.int32))
    read = [hidden, talker.model.codec_embedding(codes[:, :1])]
    read += [predictor.embed(stage, codes[:, stage + 1 : stage + 2]) for stage in range(predictor.stages - 1)]
    x, cache = predictor.small_to_mtp_projection(_joined(side, read)), predictor.new_cache()
    rotation = predictor.rotary(0, x.shape[1])
    for i, layer in enumerate(predictor.model.layers):
        x = layer(x, rotation, cache[i])
        found[f"stage_layer.{i}"] = side.numpy(x)[0]
    x = predictor.model.norm(x)
    logits = [side.numpy(head(x[:, stage + 1])) for stage, head in enumerate(predictor.lm_head)]
    return found | {"stage_logits": np.stack(logits, axis=1)}


def _draws(
    side: ModelSide,
    found: dict[str, np.ndarray],
    code0: np.ndarray,
    noise: np.ndarray | None,
    sampling: Qwen3Sampling,
) -> dict[str, np.ndarray]:
    """By how much each drawn code was the best, and of how many candidates."""
    config = side.network.config
    allowed = allowed_ids(config.vocab_size, SUPPRESSED, config.codec_eos_id)
    with side.inference():
        logits = found["logits"]
        seen = np.zeros(logits.shape, bool)
        for step, code in enumerate(code0[:-1]):
            seen[step + 1 :, code] = True
        steps, (first_numbers, numbers) = np.arange(len(logits))[:, None], sampling.numbers
        inputs = {"allowed": allowed, "counts": seen, "step": steps, "end": config.codec_eos_id}
        first = score(side, FIRST, [logits], first_numbers, **inputs)
        others = score(side, OTHERS, [found["stage_logits"]], numbers)
    made = {"count0": np.isfinite(first).sum(axis=-1), "count": np.isfinite(others).sum(axis=-1)}
    if noise is not None:
        wide = noise.astype(first.dtype)
        own, rest = wide[:, : first.shape[1]], wide[: len(others), first.shape[1] :].reshape(others.shape)
        first = first if sampling.first.is_greedy else first - np.log(-np.log(own))
        others = others if sampling.others.is_greedy else others - np.log(-np.log(rest))
    return made | {"margin0": _margin(first), "margin": _margin(others)}


def _margin(scores: np.ndarray) -> np.ndarray:
    """The best score minus the second. (..., V) → (...)."""
    best = np.sort(scores, axis=-1)[..., -2:]
    return best[..., 1] - best[..., 0]


def _joined(side: Side, parts: list[Any], axis: int = 1) -> Any:
    return side.array(np.concatenate([side.numpy(part) for part in parts], axis=axis))


def _check_sound(row: Row, golden: np.ndarray, codes: np.ndarray, samples: int, benches: Benches) -> None:
    """The wave of a run, after its recording."""
    every = codes.T[None]
    if row.frames is not None:
        every = np.concatenate([row.frames, every], axis=2)
    before = 0 if row.frames is None else row.frames.shape[2]

    def run(side: CodecSide) -> np.ndarray:
        wave = side.decode(every)
        return wave[0, layouts.cut_of_recording(before, every.shape[2], wave.shape[1]) :]

    assert len(golden) == samples
    benches.codec.compare(f"{row.at}: wav", golden, run)

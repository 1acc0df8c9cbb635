"""Checks of golden runs of Qwen3-TTS: layouts, every layer, logits, codes and sound."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tests.golden.bench import Bench
from tests.golden.cases import Case, Vectors
from tests.golden.codec_bench import CodecSide
from tests.golden.qwen3_bench import ModelSide, codec_bench, model_bench, tokenizer
from tests.sides import Side
from tests.tolerance import EPS, FACTOR
from tts_core.files.json_object import read_json
from tts_core.nn.noise import HostNoise
from tts_core.qwen3 import layout as layouts
from tts_core.qwen3 import speaker
from tts_core.qwen3.config import Qwen3Config
from tts_core.qwen3.layout import Layout, Recording
from tts_core.qwen3.sampling import Choice, Sampling, read_generation

WHOLE = "non_streaming_mode"
CHUNK = "speech_tokenizer"


class Row(NamedTuple):
    """One text of a run."""

    at: str
    layout: Layout
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
    benches = Benches(model_bench(side, case.folder), codec_bench(side, case.folder / CHUNK))
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
        audio = vectors[f"{part}.audio"]
        heard = audio if rate == encoder.sample_rate else vectors[f"{part}.resampled"]
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
        voice, instruct, recording, vector, frames = layouts.NOTHING, [], None, None, None
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
                recording = Recording(tuple(ids), frames.shape[2])
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
    clips = [vectors[f"ref.{name}.audio"] for name in run["ref"]]
    longest = max(map(len, clips))
    codes = codec.encode(np.stack([np.pad(clip, (0, longest - len(clip))) for clip in clips]))
    return codes[b : b + 1, :, : -(-len(clips[b]) // codec.codec.hop_length)]


def _sampling(case: Case, settings: dict[str, Any]) -> Sampling:
    """The settings of a run, which info.json lists in full."""
    read_generation(read_json(case.path("generation_config.json")))
    first, others = (
        Choice(
            not settings[sampled],
            *(settings[f"{prefix}{name}"] for name in ("temperature", "top_k", "top_p")),
        )
        for prefix, sampled in (("", "do_sample"), ("subtalker_", "subtalker_dosample"))
    )
    return Sampling(first, others, settings["repetition_penalty"])


def _check_run(at: str, case: Case, run: dict[str, Any], vectors: Vectors, benches: Benches) -> None:
    part, config = run["name"], benches.config
    mask, code0, frames = (vectors[f"{part}.{name}"] for name in ("mask", "code0", "frames"))
    assert run["settings"]["eos_token_id"] == config.codec_eos_id
    assert code0.shape[1] == run["tokens"]
    sampling = _sampling(case, run["settings"])
    pad = vectors[f"{part}.pad_embed"][None]
    benches.model.compare(f"{at}.pad_embed", pad, lambda each: _texts(each, [config.tts_pad_id]))
    rows = _rows(at, case, run, vectors, benches.codec.side, config)
    for b, row in enumerate(rows):
        _check_layout(row, b, part, vectors, benches, mask[b])
        codes = vectors[f"{part}.codes.{b}"]
        _check_codes(row, codes, code0[b], run, sampling, benches)
        _check_steps(row, b, part, run, vectors, benches, code0[b], frames[b], len(codes))
        _check_sound(row, vectors[f"{part}.wav.{b}"], codes, run["samples"][b], benches)
    for name in ("margin", "margin0", "count", "count0", "uniform"):  # margins and counts of the draws above
        if f"{part}.{name}" in vectors:
            _ = vectors[f"{part}.{name}"]


def _texts(side: ModelSide, ids: list[int]) -> np.ndarray:
    with side.inference():
        return side.numpy(side.network.talker.embed_text(side.array(np.array(ids, np.int32))))


def _prompt(side: ModelSide, row: Row) -> Any:
    vector, frames = (None if each is None else side.array(each) for each in (row.speaker, row.frames))
    return side.network.talker.embed_layout(row.layout, vector, frames)


def _prompt_numbers(side: ModelSide, row: Row) -> np.ndarray:
    with side.inference():
        return side.numpy(_prompt(side, row))[0]


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


def _check_codes(
    row: Row, codes: np.ndarray, code0: np.ndarray, run: dict[str, Any], sampling: Sampling, benches: Benches
) -> None:
    """Speak on the side under test: all codes are exactly the original's."""
    side = benches.model.side
    with side.inference():
        loop = side.module("qwen3.loop").Loop(
            side.network,
            _prompt(side, row),
            row.layout.trailing,
            sampling=sampling,
            noise=HostNoise(row.seed or 0),
        )
        own = [side.numpy(frame)[0] for frame in loop.frames(run["settings"]["max_new_tokens"] - 1)]
    np.testing.assert_array_equal(np.array(own), codes, f"{row.at}: codes")
    ended = len(own) < len(code0) and code0[len(own)] == benches.config.codec_eos_id
    assert ended or len(own) == run["settings"]["max_new_tokens"] - 1, row.at


def _check_steps(
    row: Row,
    b: int,
    part: str,
    run: dict[str, Any],
    vectors: Vectors,
    benches: Benches,
    code0: np.ndarray,
    frames: np.ndarray,
    count: int,
) -> None:
    """Every layer and all logits that are stored, with the original's own codes read."""
    bench, full = benches.model, run["full"]
    logits = vectors[f"{part}.logits"][b]
    stages = vectors[f"{part}.stage_logits"][b]
    first = len(code0) - len(logits)
    first_stage = len(frames) - len(stages)

    def steps(side: ModelSide) -> dict[str, np.ndarray]:
        return _read(side, row, frames)

    every = [steps(side) for side in (bench.side, bench.torch32, bench.torch64)]
    known = {
        id(side): each for side, each in zip((bench.side, bench.torch32, bench.torch64), every, strict=True)
    }

    def of(name: str, start: int = 0) -> Any:
        return lambda side: known[id(side)][name][start:]

    bench.compare(f"{row.at}: logits", logits, of("logits", first))
    if len(stages):
        bench.compare(f"{row.at}: stage_logits", stages, of("stage_logits", first_stage))
    if not full:
        return
    bench.compare(f"{row.at}: hidden", vectors[f"{part}.hidden"][b], of("hidden"))
    length = len(row.layout.text)
    for name in vectors.names:
        at, _, index = name.rpartition(".")
        if at == f"{part}.layer":
            golden = vectors[name][b]
            bench.compare(f"{row.at}: layer.{index}", golden[len(golden) - length :], of(f"layer.{index}"))
        elif at == f"{part}.stage_layer":
            bench.compare(f"{row.at}: stage_layer.{index}", vectors[name][b], of(f"stage_layer.{index}"))


def _read(side: ModelSide, row: Row, frames: np.ndarray) -> dict[str, np.ndarray]:
    """Read a prompt and given frames. frames: (steps - 1, Q)."""
    talker, found = side.network.talker, dict[str, np.ndarray]()
    with side.inference():
        prompt = _prompt(side, row)
        cache = talker.new_cache()
        length, x = prompt.shape[1], prompt
        rotation = talker.rotary(0, length)
        for i, layer in enumerate(talker.model.layers):
            x = layer(x, rotation, cache[i])
            found[f"layer.{i}"] = side.numpy(x)[0]
        hidden = [talker.model.norm(x)[:, -1:]]
        ids = [*row.layout.trailing]
        ids += [side.network.config.tts_pad_id] * (len(frames) - len(ids))
        texts = talker.embed_text(side.array(np.array(ids, np.int32)))[None]
        codes = side.array(np.ascontiguousarray(frames.T[None]))
        x = talker.embed_frames(codes) + texts[:, : len(frames)]
        for step in range(len(frames)):
            hidden.append(talker(x[:, step : step + 1], length + step, cache))
        found["hidden"] = np.concatenate([side.numpy(each)[0] for each in hidden])
        found["logits"] = np.concatenate([side.numpy(talker.logits(each))[0] for each in hidden])
        stages = [_stages(side, hidden[step], frames[step]) for step in range(len(frames))]
        found["stage_logits"] = np.stack([logits for logits, _ in stages])
        for i, layer in enumerate(stages[0][1]):
            found[f"stage_layer.{i}"] = layer
    return found


def _stages(side: ModelSide, hidden: Any, frame: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Logits of all stages with given codes, (Q - 1, V), and every layer at all positions."""
    talker = side.network.talker
    predictor, cache = talker.code_predictor, talker.code_predictor.new_cache()
    codes = side.array(frame[None].astype(np.int32))
    x = _joined(side, [hidden, talker.model.codec_embedding(codes[:, :1])])
    logits, layers = [], [list[np.ndarray]() for _ in predictor.model.layers]
    for stage in range(predictor.stages):
        inner = predictor.small_to_mtp_projection(x)
        rotation = predictor.rotary(stage + 1 if stage else 0, x.shape[1])
        for i, layer in enumerate(predictor.model.layers):
            inner = layer(inner, rotation, cache[i])
            layers[i].append(side.numpy(inner)[0])
        logits.append(side.numpy(predictor.lm_head[stage](predictor.model.norm(inner)[:, -1])))
        x = predictor.embed(stage, codes[:, stage + 1 : stage + 2])
    return np.concatenate(logits), [np.concatenate(each) for each in layers]


def _joined(side: Side, parts: list[Any]) -> Any:
    return side.array(np.concatenate([side.numpy(part) for part in parts], axis=1))


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

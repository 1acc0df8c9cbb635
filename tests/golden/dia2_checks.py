"""Checks of Dia2's golden folders: networks, whole runs, runs that continue recordings, and the sampler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import soundfile

from tests.draws import draw, only, score
from tests.golden.bench import Bench
from tests.golden.cases import Case, Vectors
from tests.golden.codec_bench import CodecSide
from tests.golden.dia2_bench import Dia2Side, Ran, codec_of, dia2_bench, drawn, reader_of
from tests.sides import Side
from tests.tolerance import EPS, bound
from tts_core.dia2.config import Dia2Config
from tts_core.dia2.inputs import FIRST_STREAM, SAMPLER, Dia2Choice, Dia2Sampling, allowed_ids
from tts_core.dia2.recordings import Prefix, align, prefix_of
from tts_core.dia2.run import Dia2Run
from tts_core.prompt import Word

ROWS = ("actions", "main", "second")


def check_dia2(case: Case, side: str) -> None:
    """Check everything in a folder of one checkpoint on one side."""
    info, vectors, bench = case.info, case.vectors(), dia2_bench(side, case)
    config: Dia2Config = bench.side.network.config
    _check_ids(case, config)
    _check_forced(str(case), vectors, bench)
    _check_half(str(case), vectors, bench.side)
    for n, given in enumerate(info["greedy"]):
        choice = Dia2Choice(given["cfg"], given["k"], 0, 0)
        run = Dia2Run(config, reader_of(case, config).entries(given["text"]), initial_padding=given["pad"])
        made = bench.side.speak(run, Dia2Sampling(choice, choice))
        _check_run(f"{case}: greedy.{n}", made, given, vectors, f"greedy.{n}", info["frame_rate"])
        if f"greedy.{n}.waveform" in vectors:
            _check_wave(f"{case}: greedy.{n}", run, vectors[f"greedy.{n}.waveform"], codec_of(side, case))
            assert given["samples"] == len(vectors[f"greedy.{n}.waveform"])
        file = case.folder / f"greedy.{n}.wav"
        if file.exists():
            _check_file(*soundfile.read(file, dtype="int16"), info, vectors[f"greedy.{n}.waveform"])
    _check_sampled(case, vectors, bench.side)
    vectors.assert_all_read()


def _check_ids(case: Case, config: Dia2Config) -> None:
    """Compare the ids that the original used with ours."""
    given, reader = dict(case.info["token_ids"]), reader_of(case, config)
    del given["ungenerated"]  # ours is the pad: no step reads it
    assert given == {
        "new_word": config.text_new_word_id,
        "pad": config.text_pad_id,
        "bos": config.text_bos_id,
        "zero": config.text_zero_id,
        "spk1": reader.speakers[0],
        "spk2": reader.speakers[1],
        "audio_pad": config.audio_pad_id,
        "audio_bos": config.audio_bos_id,
    }


def _check_forced(at: str, vectors: Vectors, bench: Bench[Dia2Side]) -> None:
    """Every layer of both networks, teacher-forced; the depformer reads the transformer's golden output."""
    tokens, hidden = vectors["tf.tokens"], vectors["tf.hidden"]
    text = [vectors[f"tf.stage_{name}"] for name in ("main", "second")]
    inputs = vectors["tf.stage_inputs"]
    for run in (
        lambda side: side.teacher_forced(tokens),
        lambda side: side.stages(hidden, inputs, text),
    ):
        own, known, truth = (run(one) for one in (bench.side, bench.torch32, bench.torch64))
        for name in truth:
            if f"tf.{name}" in vectors:
                made = {bench.side.kind: own, "torch": known, "float64": truth}
                bench.compare(
                    f"{at}: {name}",
                    vectors[f"tf.{name}"],
                    lambda one, name=name, made=made: made[one.kind][name],
                )


def _check_half(at: str, vectors: Vectors, side: Dia2Side) -> None:
    """float32 weights with bfloat16 arithmetic: nearer to the original's than that is to float32."""
    framework = "mlx.core" if side.kind == "mlx" else "torch"
    side.network.transformer.compute = __import__(framework, fromlist=["bfloat16"]).bfloat16
    try:
        own = side.teacher_forced(vectors["tf.tokens"])
        text = [vectors[f"tf.stage_{name}"] for name in ("main", "second")]
        own |= side.stages(vectors["bf16.hidden"], vectors["tf.stage_inputs"], text)
    finally:
        side.network.transformer.compute = None
    for name in (name.removeprefix("bf16.") for name in vectors.names if name.startswith("bf16.")):
        golden, wide = vectors[f"bf16.{name}"], vectors[f"tf.{name}"]
        off, apart = np.abs(own[name] - golden).mean(), np.abs(golden - wide).mean()
        assert off < apart, f"{at}: bf16.{name} is off by {off:.3e}, bfloat16 from float32 by {apart:.3e}"
    np.testing.assert_array_equal(own["embed"], vectors["bf16.embed"], f"{at}: bf16.embed")
    # at the first step no rounding is inside attention
    np.testing.assert_array_equal(own["hidden"][:, 0], vectors["bf16.hidden"][:, 0], f"{at}: bf16.hidden")
    np.testing.assert_allclose(
        own["stage.0.logits"],
        vectors["bf16.stage.0.logits"],
        rtol=0,
        atol=2e-5,
        err_msg=f"{at}: bf16.stage.0",
    )


def _check_run(
    at: str, made: Ran, given: Mapping[str, Any], vectors: Vectors, name: str, frame_rate: float
) -> None:
    """Compare a run's integers and word times; the golden rows include the steps of a prefix."""
    run = made.run
    for row in ROWS:
        golden = vectors[f"{name}.{row}"]
        assert len(golden) == given["steps"], f"{at}.{row}"
        np.testing.assert_array_equal(
            getattr(made, row), golden[len(golden) - len(made.actions) :], f"{at}.{row}"
        )
    grid = run.grid.codes[:, : run.grid.filled]
    np.testing.assert_array_equal(grid, vectors[f"{name}.grid"], f"{at}.grid")
    codes = run.codes(0, run.frames)[None]
    np.testing.assert_array_equal(codes, vectors[f"{name}.codes"], f"{at}.codes")
    assert (given["frames"], given["columns"]) == (run.frames, run.grid.filled), at
    words = [[word.text, word.start] for word in run.words(frame_rate)]
    assert words == [[text, start] for text, start in given["timestamps"]], at
    assert run.finish_reason == "stop", at


def _check_wave(at: str, run: Dia2Run, golden: np.ndarray, codec: Bench[CodecSide]) -> None:
    codes = run.codes(0, run.frames)[None]
    codec.compare(f"{at}.waveform", golden[None], lambda side: side.decode(codes).clip(-1, 1))


def _check_file(samples: np.ndarray, rate: int, info: Mapping[str, Any], wave: np.ndarray) -> None:
    """The original truncates toward zero to 16 bits."""
    assert rate == info["sample_rate"]
    np.testing.assert_array_equal(samples, np.trunc(wave.clip(-1, 1) * np.float32(32767)))


def _check_sampled(case: Case, vectors: Vectors, side: Dia2Side) -> None:
    """Replay the original's draws: its candidates at every draw, then grid, codes and times."""
    given, config = case.info["sampled"], side.network.config
    sampling = Dia2Sampling(
        Dia2Choice(given["cfg"], given["k"], given["text_temp"], given["text_k"]),
        Dia2Choice(given["cfg"], given["k"], given["audio_temp"], given["audio_k"]),
    )
    run = Dia2Run(config, reader_of(case, config).entries(given["text"]), initial_padding=given["pad"])
    picks = vectors["sampled.pick"]
    made = side.speak(run, sampling, iter(picks.tolist()))
    assert len(drawn) == len(picks)
    for n, logits in enumerate(drawn):
        _check_candidates(
            f"{case}: draw {n}",
            logits,
            vectors["sampled.ids"][n],
            vectors["sampled.prob"][n],
            int(vectors["sampled.count"][n]),
        )
    _check_run(f"{case}: sampled", made, given, vectors, "sampled", case.info["frame_rate"])


def _check_candidates(at: str, logits: np.ndarray, ids: np.ndarray, probs: np.ndarray, count: int) -> None:
    """Compare the ids that may be drawn, and their probabilities in falling order."""
    own = probabilities(logits)
    order = np.argsort(-own, kind="stable")[: np.count_nonzero(own)]
    assert len(order) == count, f"{at}: {len(order)} candidates, expected {count}"
    np.testing.assert_allclose(own[order], probs[:count], rtol=0, atol=2e-5, err_msg=at)
    assert set(order.tolist()) == set(ids[:count].tolist()), at


def probabilities(logits: np.ndarray) -> np.ndarray:
    """softmax in float32."""
    risen = np.exp(logits - logits.max(-1, keepdims=True))
    return (risen / risen.sum(-1, keepdims=True)).astype(np.float32)


def check_prefix(case: Case, side: str) -> None:
    """Check whole runs that continue one or two recordings."""
    info, vectors, bench = case.info, case.vectors(), dia2_bench(side, case)
    config: Dia2Config = bench.side.network.config
    codec, of = codec_of(side, case), Case(case.path(info["of"]))
    rate, reader = of.info["frame_rate"], reader_of(of, config)
    for name, file in info["wavs"].items():
        audio, codes = vectors[f"{name}.audio"], vectors[f"{name}.codes"]
        heard, own_rate = soundfile.read(case.path(file), dtype="float32")
        assert own_rate == codec.side.codec.sample_rate
        np.testing.assert_allclose(heard, audio, rtol=0, atol=2 / 32768, err_msg=f"{case}: {file}")
        own = codec.side.numpy(codec.side.codec.encode(audio[None], config.n_streams))[0]
        np.testing.assert_array_equal(own, codes, f"{case}: {name}.codes")
    for n, given in enumerate(info["runs"]):
        prefix = _prefix(info, given, vectors, reader, rate)
        np.testing.assert_array_equal(prefix.codes, vectors[f"run.{n}.prefix_codes"])
        assert [[list(entry.tokens), entry.text, entry.padding] for entry in prefix.entries] == given[
            "entries"
        ]
        assert prefix.steps == set(given["new_word_steps"])
        assert prefix.frames == given["prefix_frames"]
        choice = Dia2Choice(given["cfg"], given["k"], 0, 0)

        def speak(one: Dia2Side, given: Any = given, prefix: Any = prefix, choice: Any = choice) -> Ran:
            run = Dia2Run(
                config,
                reader.entries(given["text"]),
                prefix=prefix,
                initial_padding=given["pad"],
                has_prefix=given["include"],
            )
            return one.speak(run, Dia2Sampling(choice, choice))

        made = {one.kind: speak(one) for one in (bench.side, bench.torch32, bench.torch64)}
        at = f"{case}: run.{n}"
        _check_run(at, made[bench.side.kind], given, vectors, f"run.{n}", rate)
        if f"run.{n}.waveform" in vectors:
            _check_wave(at, made[bench.side.kind].run, vectors[f"run.{n}.waveform"], codec)
        for place, name in enumerate(("warm_k.0", "warm_v.0")):
            rows = 2 if choice.is_guided else 1  # the original computes the other row, too
            golden = vectors[f"run.{n}.{name}"][:rows]

            def warm(one: Dia2Side, place: int = place, made: Any = made) -> np.ndarray:
                return made[one.kind].cache[place]

            bench.compare(f"{at}.{name}", golden, warm)
    vectors.assert_all_read()


def _prefix(
    info: Mapping[str, Any], given: Mapping[str, Any], vectors: Vectors, reader: Any, rate: float
) -> Prefix:
    parts = []
    for speaker, name in enumerate(given["speakers"]):
        words = [Word(*word) for word in info["words"][name]]
        parts.append((vectors[f"{name}.codes"], *align(reader.tokenizer, speaker, words, rate)))
    return prefix_of(parts)


def check_sampler(case: Case, kind: str) -> None:
    """Check every setting of the sampler on one side."""
    info, vectors, side = case.info, case.vectors(), Side(kind)
    picked = only(SAMPLER, "nearer_guidance", "cfg_filter_k")
    for place, given in info["settings"]:
        logits = vectors[f"logits.{given['logits']}"]
        choice = Dia2Choice(given["cfg_scale"], given["cfg_filter_k"], given["temperature"], given["top_k"])
        pair = [np.ascontiguousarray(logits[:, row]) for row in (0, 1)]
        kept = score(side, picked, pair, choice.numbers) > -np.inf
        np.testing.assert_array_equal(kept, vectors[f"{place}.kept"].astype(bool), f"{case}: {place}.kept")
        sampler, inputs = SAMPLER, dict[str, np.ndarray]()
        if given["mask_special"]:
            sampler = FIRST_STREAM
            inputs["allowed"] = allowed_ids(logits.shape[-1], (given["pad"], given["bos"]))
        greedy = Dia2Choice(choice.cfg_scale, choice.cfg_filter_k, 0, 0).numbers
        chosen = draw(side, sampler, pair, greedy, None, **inputs)
        np.testing.assert_array_equal(chosen, vectors[f"{place}.argmax"], f"{case}: {place}.argmax")
        own = probabilities(score(side, sampler, pair, choice.numbers, **inputs))
        if choice.is_greedy:  # what is drawn from is the likeliest id alone
            own = np.eye(own.shape[-1], dtype=np.float32)[own.argmax(-1)]
        golden = {name: vectors[f"{place}.{name}"] for name in ("ids", "prob", "count")}
        _check_draws(f"{case}: {place}", own, golden, has_ties=given["logits"] == 1)
    vectors.assert_all_read()


def _check_draws(at: str, own: np.ndarray, golden: Mapping[str, np.ndarray], *, has_ties: bool) -> None:
    """Probabilities in falling order; with ties the ids are the original's choice among equals."""
    for row, probs in enumerate(own):
        count = int(golden["count"][row])
        order = np.argsort(-probs, kind="stable")[: np.count_nonzero(probs)]
        assert len(order) == count, f"{at}, row {row}: {len(order)} candidates, expected {count}"
        expected = golden["prob"][row, :count].astype(np.float64)
        known = probs[order].astype(np.float64)
        allowed = bound(golden["prob"][row, :count], expected) + 16 * EPS
        np.testing.assert_allclose(known, expected, rtol=1e-4, atol=allowed, err_msg=at)
        if not has_ties:
            assert set(order.tolist()) == set(golden["ids"][row, :count].tolist()), f"{at}, row {row}"

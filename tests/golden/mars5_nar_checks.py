"""Checks of the golden files of MARS5's diffusion: network, formulas, step, whole runs."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.bench import Bench
from tests.golden.cases import Vectors, existing
from tests.golden.mars5_nar_bench import NarSide, bench, formulas
from tests.tiny.states import states
from tests.tolerance import assert_within
from tts_core.audio.silence import FRAME_LENGTH, HOP_LENGTH, loud_span
from tts_core.mars5.diffusion import (
    FIRST_DRAW,
    OFFSET,
    ONE_HOT_FLOOR,
    SMALLEST_RATIO,
    Cells,
    Diffusion,
    constants,
    gumbel,
    make_cells,
    schedule,
)
from tts_core.nn.positions import BASE, timestep_table

Info = dict[str, Any]


def check(file: Path, side: str) -> None:
    """Check everything in one file of a folder on one side."""
    vectors, info = Vectors(file), json.loads(existing(file.with_suffix(".json")).read_text())
    CHECKS[file.stem](vectors, info, side)
    vectors.assert_all_read()


def check_forward(vectors: Vectors, info: Info, side: str) -> None:
    """The network: speaker vectors, inputs and outputs of its parts, logits; two padded rows."""
    both = bench(side, vectors.file.parent, info["checkpoint"])
    text, prompt, x = (vectors[name] for name in ("c_text", "c_codes", "x"))
    assert (prompt.shape[1], x.shape[1]) == (info["prompt_frames"], info["frames"])
    both.compare("spk_emb_cond", vectors["spk_emb_cond"], lambda s: s.numpy(speaker(s, prompt, drop=False)))
    both.compare(
        "spk_emb_uncond", vectors["spk_emb_uncond"], lambda s: s.numpy(speaker(s, prompt, drop=True))
    )

    times = [case["t"] for case in info["cases"].values()] + [info["intermediates_t"], *info["batch"]["t"]]
    timesteps = max(times) + 1

    def source(s: NarSide, *, drop: bool = False) -> Any:
        network, given = s.network, speaker(s, prompt, drop=drop)
        return network.read(s.array(text), given, frames=x.shape[1], timesteps=timesteps)

    def logits(s: NarSide, t: int, *, drop: bool) -> np.ndarray:
        found = s.network(s.array(x), source(s, drop=drop), s.array(np.array([t])))
        return s.numpy(found).swapaxes(2, 3)

    for name, case in info["cases"].items():
        both.compare(name, vectors[name], lambda s, c=case: logits(s, c["t"], drop=c["drop_cond"]))
    _check_parts(vectors, info, both, source, x)
    _check_batch(vectors, info["batch"], both, timesteps)
    _check_features(vectors, info)


def speaker(s: NarSide, prompt: np.ndarray, *, drop: bool) -> Any:
    network = s.network
    return network.no_speaker() if drop else network.speaker(s.array(prompt))


def _check_parts(vectors: Vectors, info: Info, both: Bench[NarSide], source: Any, x: np.ndarray) -> None:
    at = info["intermediates_t"]

    def part(s: NarSide, name: str) -> np.ndarray:
        network, given, t = s.network, source(s), s.array(np.array([at]))
        found = {
            "enc_in": lambda: network.encoder_input(given, t),
            "dec_in": lambda: network.decoder_input(s.array(x), given, t),
            "memory": lambda: network.tfm.encoder(network.encoder_input(given, t)),
            "dec_out": lambda: network.hidden(s.array(x), given, t),
        }
        return s.numpy(found[name]())

    for name in ("enc_in", "dec_in", "memory", "dec_out"):
        both.compare(f"t{at}.{name}", vectors[f"t{at}.{name}"], lambda s, n=name: part(s, n))


def _check_batch(vectors: Vectors, info: Info, both: Bench[NarSide], timesteps: int) -> None:
    names = ("c_text", "c_text_len", "c_codes", "c_codes_len", "x", "x_pad", "t")
    given = {name: vectors[f"batch.{name}"] for name in names}
    assert not info["drop_cond"]
    for name, key in (("c_text_len", "text_lengths"), ("c_codes_len", "prompt_lengths"), ("t", "t")):
        assert given[name].tolist() == info[key], f"batch.{name}"
    lengths = (~given["x_pad"]).sum(axis=1)
    assert (given["x_pad"] == (np.arange(given["x"].shape[1]) >= lengths[:, None])).all(), (
        "padding is at the end"
    )

    def logits(s: NarSide) -> np.ndarray:
        network = s.network
        on = {name: s.array(value) for name, value in given.items()}
        source = network.read(
            on["c_text"],
            network.speaker(on["c_codes"], on["c_codes_len"]),
            frames=given["x"].shape[1],
            timesteps=timesteps,
            text_lengths=on["c_text_len"],
            frame_lengths=s.array(lengths),
        )
        return s.numpy(network(on["x"], source, on["t"])).swapaxes(2, 3)

    both.compare("batch.logits", vectors["batch.logits"], logits)


def _check_features(vectors: Vectors, info: Info) -> None:
    """Upstream computes them in float32; the same formula in float32 gives the error to expect."""
    times = np.array(info["timestep_embedding_t"])
    for name, width in info["timestep_embedding_dims"].items():
        oracle = timestep_table(int(times.max()) + 1, width)[times]
        half = width // 2
        frequencies = np.exp(
            -np.float32(math.log(BASE)) * np.arange(half, dtype=np.float32) / np.float32(half)
        )
        angles = times[:, None].astype(np.float32) * frequencies
        known = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
        assert_within(vectors[name], known, oracle, f"{name}: golden vector")
        assert_within(oracle.astype(np.float32), vectors[name], oracle, name)


def check_math(vectors: Vectors, info: Info, side: str) -> None:
    """Tables exactly, formulas within rounding, and the draw at the ends of uniform numbers exactly."""
    k, rows = info["n_classes"], info["rows_kept"]
    assert (info["cosine_s"], info["ratio_clip"]) == (OFFSET, [SMALLEST_RATIO, 1.0])
    assert info["one_hot_floor"] == ONE_HOT_FLOOR
    for timesteps in info["schedule_T"]:
        for name, table in asdict(schedule(timesteps)).items():
            np.testing.assert_array_equal(
                table, vectors[f"T{timesteps}.{name}"], err_msg=f"T{timesteps}.{name}"
            )
    for name, given in info["resample_schedules"].items():
        straight = vectors[name].tolist() == [*reversed(range(given["T"])), -1]
        assert straight == (given["jump_n_sample"] == 1), "upstream runs only with 1 sample: straight down"

    log_x0, x_t = vectors["log_x0"], vectors["x_t"]
    one_hot = np.where(np.arange(k) == x_t[..., None], 0, math.log(ONE_HOT_FLOOR)).astype(np.float32)
    np.testing.assert_array_equal(one_hot, vectors["log_onehot_x_t"])
    both = formulas(side)
    tables, table = schedule(info["T"]), constants(info["T"], k, 0)
    for t in info["functions_t"]:
        so_far = tables.log_cumprod_alpha[t], tables.log_1_min_cumprod_alpha[t] - np.log(k)
        one = tables.log_alpha[t], tables.log_1_min_alpha[t] - np.log(k)
        for name, log_p, (keep, rest) in (("q_pred", log_x0, so_far), ("q_one", one_hot, one)):
            both.compare(
                f"{name}.t{t}",
                vectors[f"{name}.t{t}"],
                lambda s, p=log_p[:, :, :rows], a=keep, b=rest: s.numpy(mixed(s, p, a, b)),
            )
        both.compare(
            f"q_post.t{t}",
            vectors[f"q_post.t{t}"],
            lambda s, t=t: s.numpy(posterior(s, log_x0[:, :, :rows], x_t[:, :, :rows], table, t)),
        )
    uniform, logits = vectors["gumbel_u"], vectors[info["gumbel_logits"]]
    assert {0.0, 1.0} <= set(uniform.ravel().tolist()), "gumbel_u: neither end is there"
    drawn = both.side.diffusion.draw_per_class(both.side.array(logits), both.side.array(gumbel(uniform)))
    np.testing.assert_array_equal(both.side.numpy(drawn), vectors["gumbel_sample"])


def mixed(s: NarSide, log_p: np.ndarray, keep: Any, rest: Any) -> Any:
    numbers = (s.array(np.array(number, np.float32)) for number in (keep, rest))
    return s.diffusion.mixed(s.array(log_p), *numbers)


def posterior(s: NarSide, log_x0: np.ndarray, codes: np.ndarray, table: np.ndarray, t: int) -> Any:
    diffusion = s.diffusion
    at = diffusion.at_timestep(s.array(table), s.array(np.array([t])))
    return diffusion.posterior(s.array(log_x0), s.array(codes), at)


def check_step(vectors: Vectors, info: Info, side: str) -> None:
    """One step: guided logits and posterior of all cells within rounding, the next state exactly."""
    both = bench(side, vectors.file.parent, info["checkpoint"])
    text, prompt = vectors["c_text"][0], vectors["c_codes"][0].T
    codes, clean, known = (vectors[name][0] for name in ("x_t", "x_known", "m"))
    cells = Cells(codes.astype(np.int32), np.where(known, clean, 0).astype(np.int32), known)
    assert (len(codes), prompt.shape[1]) == (info["frames"], info["prompt_frames"])
    settings = Diffusion(
        info["T"], info["guidance_w"], info["x_0_temp"], q0_override_steps=info["T"], draws="per class"
    )
    table = constants(info["T"], info["n_classes"], info["T"])

    def guided(s: NarSide, t: int) -> Any:
        source = s.reverse.ReverseDiffusion(s.network).read(text, prompt, cells, settings)
        logits = s.network(s.array(codes[None]), source, s.array(np.array([t])))
        return s.diffusion.guided(logits, settings.guidance_w, settings.x_0_temp)

    def log_posterior(s: NarSide, t: int) -> np.ndarray:
        clean_logits = s.numpy(guided(s, t))
        log_x0 = clean_logits - np.logaddexp.reduce(clean_logits, axis=-1, keepdims=True)
        return s.numpy(posterior(s, log_x0, codes, table, t))[None]

    def of_the_step(s: NarSide, t: int) -> np.ndarray:
        step, given = _step(s, text, prompt, cells, settings), (s.array(codes), s.array(np.array([t])))
        return s.numpy(step.log_posterior(step.logits(*given), *given))[None]

    for name, case in info["cases"].items():
        t = case["t"]
        both.compare(
            f"{name}: logits", vectors[case["x0_logits"]], lambda s, t=t: s.numpy(guided(s, t))[None]
        )
        golden = vectors[case["log_posterior"]]
        both.compare(f"{name}: posterior", golden, lambda s, t=t: log_posterior(s, t))
        frame, book = cells.unknown_from
        unknown = golden[:, frame:, book:]
        both.compare(f"{name}: posterior of unknown cells", unknown, lambda s, t=t: of_the_step(s, t))
        numbers = np.zeros((2, *golden.shape[1:]), np.float32)  # all alike: the largest is drawn
        for which, draw in enumerate(case["draws"]):
            assert draw == ("unknown", "known")[which]
            numbers[which] = gumbel(vectors[f"{name}.u{which}"])[0]
        s = both.side
        step = _step(s, text, prompt, cells, settings)
        after = step(s.array(codes), s.array(np.array([t])), s.array(numbers))
        np.testing.assert_array_equal(
            s.numpy(after), vectors[f"{name}.x_tm1"][0], err_msg=f"{name}: margin {case['min_gap']:.1e}"
        )
        assert step.finite.item(), f"{name}: not finite"


def _step(s: NarSide, text: np.ndarray, prompt: np.ndarray, cells: Cells, settings: Diffusion) -> Any:
    source = s.reverse.ReverseDiffusion(s.network).read(text, prompt, cells, settings)
    return s.reverse.DenoisingStep(s.network, source, cells, settings)


class GoldenNoise:
    """The recorded stream: one draw of whole numbers, then uniform ones in the order of their use."""

    def __init__(self, run: Info):
        self.stream, self.drawn = np.random.RandomState(run["rng_seed"]), 0
        assert run["n_randint_draws"] == 1
        self.start = self.stream.randint(0, run["n_classes"], run["init_shape"], dtype=np.int64)[0].T

    def uniform(self, step: int, shape: tuple[int, ...]) -> np.ndarray:
        self.drawn += 1
        assert step == FIRST_DRAW + self.drawn, f"draw {self.drawn} was asked for as {step}"
        return self.stream.random_sample(shape).astype(np.float32)


def check_runs(vectors: Vectors, info: Info, side: str) -> None:
    """Whole runs from the recorded draws, exactly: the state that enters every step, and the codes."""
    s = bench(side, vectors.file.parent, info["checkpoint"]).side
    diffusion = s.reverse.ReverseDiffusion(s.network)
    for name, run in info["runs"].items():
        text, prompt, given = (vectors[f"{name}.{part}"][0] for part in ("c_text", "c_codes", "x_in"))
        assert (run["jump_len"], run["jump_n_sample"], run["last_step_greedy"]) == (1, 1, False)
        assert (given == given[:, :1]).all(), f"{name}.x_in: the first codebook, repeated"
        assert (len(given), len(prompt)) == (run["frames"], run["prompt_frames"])
        noise = GoldenNoise(run)
        cells = make_cells(
            given[:, 0], noise.start, prompt.T if run["deep_clone"] else None, n_classes=run["n_classes"]
        )
        settings = Diffusion(
            run["T"], run["guidance_w"], run["x_0_temp"], run["q0_override_steps"], draws="per class"
        )
        golden, gaps = vectors[f"{name}.x_at_step"], vectors[f"{name}.min_gap"]
        assert np.isclose(gaps[::2].min(), run["min_gap_unknown"])
        if run["T"] > 1:  # the last step draws nothing for known cells
            assert np.isclose(gaps[1::2].min(), run["min_gap_known"])
        passed = [*states(s, diffusion.begin(text, prompt.T, cells, settings, noise=noise))]
        assert noise.drawn == run["n_uniform_draws"] == len(gaps), f"{name}: {noise.drawn} draws"
        assert len(passed) == run["T"] + 1 == len(golden) + 1
        for place, state in enumerate(passed[:-1]):
            margin = gaps[max(0, 2 * place - 2) : 2 * place].min(initial=1)
            message = f"{name}: entering t = {run['T'] - 1 - place}, margin before {margin:.1e}"
            np.testing.assert_array_equal(state, golden[place], err_msg=message)
        np.testing.assert_array_equal(passed[-1][-run["frames"] :], vectors[f"{name}.out"][0], err_msg=name)


def check_trim(vectors: Vectors, info: Info, side: str) -> None:
    """Computed in NumPy for both sides."""
    assert (info["frame_length"], info["hop_length"]) == (FRAME_LENGTH, HOP_LENGTH)
    for name, case in info["cases"].items():
        samples, trim_db = vectors[f"{name}.x"], float(vectors[f"{name}.top_db"])
        assert (len(samples), trim_db) == (case["n_samples"], case["top_db"]), name
        assert list(loud_span(samples, trim_db)) == vectors[f"{name}.index"].tolist() == case["index"], name


CHECKS = {
    "nar_forward": check_forward,
    "diffusion_math": check_math,
    "nar_step": check_step,
    "nar_runs": check_runs,
    "trim": check_trim,
}

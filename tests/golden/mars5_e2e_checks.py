"""Checks of MARS5's golden whole runs: from reference and text to the trimmed waveform."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from tests.golden.bench import network
from tests.golden.cases import Vectors
from tests.golden.exact import exact_rotary
from tests.golden.mars5_ar_bench import ArSide, ar_part, ar_side
from tests.golden.mars5_ar_checks import SETTINGS, options_of, read_info
from tests.golden.mars5_nar_checks import GoldenNoise
from tests.tiny.every_codec import codebooks_at
from tests.tiny.recordings import snippet
from tests.tolerance import assert_golden
from tts_core.audio.silence import loud_span
from tts_core.mars5 import speech
from tts_core.mars5.diffusion import FIRST_DRAW, Cells
from tts_core.mars5.inputs import CodecSequence
from tts_core.mars5.options import Mars5Options
from tts_core.mars5.request import BANDWIDTH_ID, for_vocoder
from tts_core.results import GenerationResult

IGNORED = {"deep_clone", "use_kv_cache", "beam_width"}  # settings of the original that ours does not have


@dataclass
class Run:
    """Data that passed between the networks of a run, and its result."""

    sequences: list[CodecSequence] = field(default_factory=list)
    read: list[tuple[np.ndarray, np.ndarray, Cells]] = field(default_factory=list)  # by the diffusion
    drawn: list[np.ndarray] = field(default_factory=list)
    result: GenerationResult | None = None


@dataclass(frozen=True, eq=False)
class Whole:
    """A pipeline of the published files. kind: "torch", "mlx", or "float64"."""

    kind: str
    pipeline: Any
    ar: ArSide
    runs: dict[str, Run] = field(default_factory=dict)  # by name: both sides' tests need the oracle's

    def run(self, label: str, about: Any, samples: np.ndarray, options: Mars5Options, classes: int) -> Run:
        """A run of the golden file. samples: (L,), the reference."""
        if label in self.runs:
            return self.runs[label]
        noise = WholeNoise(
            about, (1, about["generated_frames"], self.pipeline.engine.facts.sizes.n_codebooks), classes
        )
        run = Run()
        with exact_rotary(self.kind), self._watched(run):
            run.result = self.pipeline.generate(
                about["text"],
                prompt=snippet(samples, about["ref_transcript"]),
                options=options,
                deep_clone=about["deep_clone"],
                as_written=True,
                piece_seconds=None,
                noise=noise,
                draws="per class",
            )
        assert noise.drawn == about["n_uniform_draws"], f"{label}, {self.kind}: {noise.drawn} draws"
        self.runs[label] = run
        return run

    def speak(self, codes: np.ndarray) -> np.ndarray:
        """Untrimmed, in the network's own precision. (Q, T) → (L,)."""
        vocoder = self.pipeline.engine.vocoder
        readable = for_vocoder(codes, vocoder.config.n_codebooks, vocoder.config.codebook_size)
        return self.pipeline.engine.host.to_host(vocoder.decode(readable[None], BANDWIDTH_ID))[0]

    def speaker(self, samples: np.ndarray) -> np.ndarray:
        """The autoregressive network's vector of a reference. (L,) → (1, D)."""
        return self.ar.speaker(self.encode(samples).T)

    def encode(self, samples: np.ndarray) -> np.ndarray:
        """(L,) → (Q, P)."""
        return self.pipeline.engine.encode(samples)

    @contextmanager
    def _watched(self, run: Run) -> Any:
        engine = self.pipeline.engine
        begin = engine.diffusion.begin

        def watched_sequence(*given: Any) -> CodecSequence:
            run.sequences.append(CodecSequence(*given))
            return run.sequences[-1]

        def watched_begin(text: Any, reference: Any, cells: Cells, *rest: Any, **more: Any) -> Any:
            run.read.append((text, reference, cells))
            made = begin(text, reference, cells, *rest, **more)
            read = made.result

            def result() -> Any:
                run.drawn.append(read())
                return run.drawn[-1]

            made.result = result
            return made

        with (
            mock.patch.object(speech, "CodecSequence", watched_sequence),
            mock.patch.object(engine.diffusion, "begin", watched_begin),
        ):
            yield


@cache
def whole(kind: str, folder: Path, ar: str, nar: str, codec: str, vocoder: str) -> Whole:
    """The pipeline of the files that a case names."""
    code = import_module(f"{'mlx_port' if kind == 'mlx' else 'torch_ref'}.mars5.pipeline")

    language = ar_side(kind, folder, ar)
    forms = {} if kind == "mlx" else import_module("torch_ref.loading").Parts.fastest("mars5")
    networks = {
        "mars5": language.network,
        "mars5_nar": network(kind, "mars5_nar", folder / f"{nar}.safetensors"),
        "encodec": network(kind, "encodec", folder / codec),
        "vocos": network(kind, "vocos", folder / vocoder),
    }
    pipeline = code.compose(networks, {"mars5": ar_part(folder, ar).documents}, **forms)
    return Whole(kind, pipeline, language)


class WholeNoise(GoldenNoise):
    """The recorded draws of a run. The autoregressive network is greedy: its numbers have no effect."""

    def __init__(self, run: Any, shape: tuple[int, ...], n_classes: int):
        given = {"n_classes": n_classes, "init_shape": shape} | dict(run)
        super().__init__(given)
        self.n_classes = n_classes

    def uniform(self, step: int, shape: tuple[int, ...]) -> np.ndarray:
        if step < FIRST_DRAW:
            return np.full(shape, 0.5, np.float32)
        if step == FIRST_DRAW:
            assert shape == self.start.shape
            return (self.start + 0.5) / self.n_classes
        return super().uniform(step, shape)


def check_whole_runs(folder: Path, side: str) -> None:
    """tts_e2e: every run of it, through `generate`."""
    info, vectors = read_info(folder / "tts_e2e.json"), Vectors(folder / "tts_e2e.safetensors")
    files = folder, info["ar"], info["nar"], info["codec"], info["vocoder"]
    sides = {kind: whole(kind, *files) for kind in (side, "torch", "float64")}
    pipeline = sides[side].pipeline
    config = pipeline.engine.nar_config
    assert pipeline.sample_rate == info["sample_rate"]
    assert info["vocos_bandwidth_id"] == BANDWIDTH_ID
    assert (info["ar_choice"], info["last_step_greedy"]) == ("greedy", False)
    assert config.n_classes == info["n_classes"]
    assert codebooks_at(pipeline.engine.codec_config, info["bandwidth"]) == pipeline.sizes.n_codebooks
    for label, about in info["runs"].items():
        check_whole_run(label, about, vectors, sides, side, info["n_classes"])
    check_speaker(info, vectors, sides, side)
    vectors.assert_all_read()


def check_whole_run(
    label: str, about: Any, vectors: Vectors, sides: dict[str, Whole], side: str, n_classes: int
) -> None:
    """Check one run: input and output of each stage exactly, the waveform within rounding."""
    golden = {
        name.removeprefix(f"{label}."): vectors[name]
        for name in vectors.names
        if name.startswith(f"{label}.")
    }
    given = about["cfg"]
    assert given.keys() == SETTINGS | IGNORED
    assert (given["beam_width"], given["deep_clone"]) == (1, about["deep_clone"])
    options = options_of(given, timesteps=about["T"])
    assert len(golden["ref_audio"]) == about["ref_samples"]
    runs = {
        kind: one.run(label, about, golden["ref_audio"], options, n_classes) for kind, one in sides.items()
    }
    for kind, run in runs.items():
        check_codes(f"{label}, {kind}", run, about, golden)
    check_sound(label, options, runs, golden, sides, side)


def check_codes(at: str, run: Run, about: Any, golden: dict[str, np.ndarray]) -> None:
    """Require equal ids and codes in all stages."""
    [sequence], [(text, reference, cells)], [drawn] = run.sequences, run.read, run.drawn
    frames, new = about["prompt_frames"], about["generated_frames"]
    exactly = {
        "c_codes": reference.T[None],
        "prompt": sequence.prompt.tokens,
        "c_text": text[None],
        "first_codec_idx": sequence.prompt.first_code,
        "max_len": sequence.max_len,
        "n_est": sequence.prompt.expected_tokens,
        "ar_out": sequence.ids,
        "ar_codes": sequence.codes(),
        "x_in": np.repeat(cells.clean[-new:, 0, None], len(drawn), axis=1)[None],
        "nar_out": drawn[:, -new:].T[None],
    }
    assert (reference.shape[1], len(sequence.codes())) == (frames, new), at
    assert len(cells.codes) == new + frames * about["deep_clone"], at
    for name, own in exactly.items():
        np.testing.assert_array_equal(own, golden[name], err_msg=f"{at}: {name}")
    assert golden.keys() - exactly.keys() == {"ref_audio", "wav", "wav_untrimmed"}, at


def check_sound(
    label: str,
    options: Mars5Options,
    runs: dict[str, Run],
    golden: dict[str, np.ndarray],
    sides: dict[str, Whole],
    side: str,
) -> None:
    """Compare the whole waveform and the trimmed one."""
    result = runs[side].result
    assert result is not None
    whole_waves = {kind: one.speak(result.codes) for kind, one in sides.items()}
    untrimmed = golden["wav_untrimmed"][0]
    assert_golden(
        whole_waves[side], untrimmed, whole_waves["torch"], whole_waves["float64"], f"{label}: whole"
    )
    start, stop = loud_span(untrimmed, options.trim_db)
    waves = {kind: run.result.audio for kind, run in runs.items() if run.result is not None}
    oracle = whole_waves["float64"][start:stop]
    assert_golden(waves[side], golden["wav"], waves["torch"], oracle, f"{label}: trimmed")


def check_speaker(info: Any, vectors: Vectors, sides: dict[str, Whole], side: str) -> None:
    """The voice as one vector, from its samples."""
    samples, emb = vectors["speaker_embedding.ref_audio"], vectors["speaker_embedding.emb"]
    made = {kind: one.speaker(samples) for kind, one in sides.items()}
    assert sides[side].encode(samples).shape[1] == info["speaker_embedding_frames"]
    assert_golden(made[side], emb, made["torch"], made["float64"], "speaker_embedding")

"""Estimates against tables and files, and refusals in one line that names a job that would fit.

What is live at once: tests/parity/dia/test_memory.py.
"""

import math
import re
from dataclasses import replace
from typing import Any

import pytest

from converters.convert import outline
from converters.published import open_published
from converters.rules.dequantize import Quantization
from tests.tiny.dia import dac_config, dac_weights, dia_config, dia_weights, write_published
from tts_core.codecs import dac
from tts_core.codecs.dac import DAC_44KHZ
from tts_core.codecs.dac_memory import FITTED_TO_STREAMS, codec_policy
from tts_core.codecs.policy import CodecPolicy, own
from tts_core.dia.memory import (
    DiaJob,
    cache_rows,
    check_loading,
    check_running,
    estimate,
    fitting_batch,
    grid_rows,
    weight_bytes,
)
from tts_core.dia.model import DIA_0626
from tts_core.errors import ResourceError
from tts_core.memory.fits import QUANTIZATIONS
from tts_core.memory.machine import Machine
from tts_core.memory.terms import BACKENDS, OVERLAPS, Estimate
from tts_core.memory.weights import weight_bytes as network_bytes

FULL = DIA_0626
CONFIGS = {"dia": FULL, "dac": DAC_44KHZ}
JOB = DiaJob(text_bytes=200, frames=860)


def total(job: DiaJob = JOB, backend: str = "torch-cpu", dtype: str = "float32", **given: Any) -> int:
    return estimate(CONFIGS, job, Machine(dtype, backend, **given)).total


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(
    "mode",
    [None, ("affine", 64, 4), ("affine", 32, 8), ("affine", 128, 3), ("mxfp4", 32, 4), ("nvfp4", 16, 4)],
)
def test_weights_are_what_convert_writes(tmp_path, mode, dtype):
    config = dia_config()  # widths 44 and 72: no group size divides some layers
    encoder = replace(config.encoder_config, hidden_size=64, intermediate_size=128)
    config = replace(
        config,
        encoder_config=encoder,
        decoder_config=replace(config.decoder_config, hidden_size=128, cross_hidden_size=64),
    )
    folder = write_published(tmp_path / "dia", dia_weights(config), dac_weights(published_codec()))
    how = None if mode is None else Quantization.of(*mode)
    whole = outline(open_published([folder], offline=True), dtype=dtype, quantization=how)
    written = {plan.part.kind: plan.nbytes for plan in whole.plans}
    entry = whole.plans[0].quantization_entry()
    positions = [encoder.max_position_embeddings, config.decoder_config.max_position_embeddings]
    tables = positions[0] * encoder.head_dim + positions[1] * config.decoder_config.head_dim
    tables += max(positions) * config.decoder_config.cross_head_dim
    assert weight_bytes(config, dtype, entry) == written["dia"] + 4 * tables
    assert network_bytes("dac", published_codec(), "float32") == written["dac"]


def published_codec():
    return replace(dac_config(), codebook_dim=(4,) * 4)


@pytest.mark.parametrize(
    ("backend", "rows", "room"),
    [
        ("torch-cpu", 1, 256),
        ("torch-cpu", 256, 256),
        ("torch-mps", 257, 512),
        ("mlx-metal", 513, 513),
        ("torch-cuda", 1, 1),
        ("torch-cuda", 513, 513),
        ("torch-cuda", 3072, 3072),
    ],
)
def test_the_cache_grows_by_chunks_or_has_the_grids_rows(backend, rows, room):
    assert cache_rows(rows, backend) == room


def test_rows_are_bos_prompt_frames_and_delay():
    assert grid_rows(FULL, DiaJob(10, frames=100, prompt_frames=40)) == 1 + 40 + 100 + 15


@pytest.mark.parametrize("backend", BACKENDS)
def test_narrower_and_quantised_take_less(backend):
    four = {"group_size": 64, "bits": 4, "mode": "affine"}
    short = replace(JOB, frames=60)  # the codec stays float32
    assert total(short, dtype="bfloat16", backend=backend) < 0.65 * total(short, backend=backend)
    assert total(replace(JOB, guided=False), backend) < total(JOB, backend)
    less = total(dtype="bfloat16", backend=backend, quantization=four) < total(
        dtype="bfloat16", backend=backend
    )
    assert less == backend.startswith("mlx"), "torch dequantises when it loads"


def test_terms_add_up_and_say_why():
    guess = estimate(CONFIGS, JOB, Machine("float32", "torch-cpu"))
    sizes = {term.name: term.bytes for term in guess.terms}
    assert guess.total == sum(sizes.values()) - min(sizes["activations"], sizes["codec"])
    assert all(term.bytes > 0 for term in guess.terms)


@pytest.mark.parametrize("backend", BACKENDS)
def test_prompts_are_encoded_before_the_rest(backend):
    long = DiaJob(text_bytes=5, frames=4, prompt_frames=2000)
    guess = estimate(CONFIGS, long, Machine("bfloat16", backend))
    sizes = {term.name: term.bytes for term in guess.terms}
    together = sum if backend in OVERLAPS else max  # on a stream of its own the codec runs beside the steps
    codec = sizes["codec"] + sizes.get("codec graphs", 0) + sizes.get("codec layout", 0)
    rows = sizes["cache"] + sizes["text"] + together((sizes["activations"], codec))
    assert guess.running == max(sizes["prompts"], rows)
    assert sizes["prompts"] > sizes["codec"]


@pytest.mark.parametrize(("backend", "bytes_"), [("torch-cpu", 0.4e9), ("torch-cuda", 1.6e9)])
def test_the_codec_is_bounded_by_its_window(backend, bytes_):
    """The longest speech needs no more memory for the codec than a largest window, and a captured one."""

    def codec(frames: int) -> int:
        terms = estimate(CONFIGS, DiaJob(10, frames), Machine("float32", backend)).terms
        return sum(term.bytes for term in terms if term.name in ("codec", "codec graphs"))

    assert codec(600) <= codec(2100) == codec(3056) < bytes_


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_decode_that_nobody_hears_before_its_end_feeds_largest_windows(backend):
    """100 frames in one; a stream's largest window is 56..100 with 12 frames of context."""
    codec = estimate(CONFIGS, DiaJob(200, 100), Machine("float32", backend))["codec"]
    fed = 56 if backend in FITTED_TO_STREAMS else 100
    assert codec.why.endswith(f"{fed} frames")
    unheard = Machine("float32", backend, policy=own(backend).unheard())
    codec = estimate(CONFIGS, DiaJob(200, 100), unheard)["codec"]
    assert codec.why.endswith("100 frames"), "a running batch without listeners, everywhere"


# MB of one H100's allocator, the codec in float32; the bound is that of benchmarks/memory.py
@pytest.mark.parametrize(("batch", "measured", "most"), [(1, 4086, 1.02), (8, 4536, 1.09)])
def test_measured_peaks_on_cuda(batch, measured, most):
    """Beside them graphs keep what the allocator counts as free."""
    job = DiaJob(text_bytes=174, frames=430, batch=batch)
    guess = estimate(CONFIGS, job, Machine("bfloat16", "torch-cuda", codec_precision="float32"))
    assert measured <= (guess.total - guess["codec graphs"].bytes) / 1e6 <= most * measured
    assert guess["codec graphs"].bytes == guess["codec"].bytes


def names(guess: Estimate) -> set[str]:
    return {term.name for term in guess.terms}


def test_the_codecs_precision_decides_its_tensors_and_a_copy_of_its_weights():
    """A call of 788 frames took 1.01 GB in TF32 on an H100, 0.78 in float32 and 0.39 in bfloat16."""
    shapes = dac.parameter_shapes(DAC_44KHZ)
    decoder = sum(math.prod(shape) for name, shape in shapes.items() if name.startswith("decoder."))

    def guess(precision: str, dtype: str = "bfloat16") -> Estimate:
        long = DiaJob(200, 3000)
        return estimate(CONFIGS, long, Machine(dtype, "torch-cuda", codec_precision=precision))

    for precision, gigabytes, size in (("float32", 0.78, 0), ("tf32", 1.01, 4), ("bfloat16", 0.39, 2)):
        for dtype in ("float32", "bfloat16"):
            found = guess(precision, dtype)
            assert found["codec"].bytes / 1e9 == pytest.approx(gigabytes, rel=0.08)
            assert ("codec layout" in names(found)) == bool(size)
            assert not size or found["codec layout"].bytes == size * decoder
    assert guess("bfloat16").total < guess("float32").total < guess("tf32").total


def test_codecs_decode_in_tf32_beside_half_precision_on_cuda_by_default():
    layouts = [
        (dtype, backend)
        for dtype in ("float32", "bfloat16", "float16")
        for backend in BACKENDS
        if "codec layout" in names(estimate(CONFIGS, JOB, Machine(dtype, backend)))
    ]
    assert layouts == [("bfloat16", "torch-cuda"), ("float16", "torch-cuda")]
    asked = Machine("bfloat16", "torch-cuda", codec_precision="float32")
    assert "codec layout" not in names(estimate(CONFIGS, JOB, asked))
    port = replace(asked, backend="mlx-cuda", codec_precision="tf32")
    assert "codec layout" not in names(estimate(CONFIGS, JOB, port)), "MLX has no such switch"


def test_a_default_precision_follows_the_dtype():
    """So that a refusal that names a dtype counts what it would take."""
    whole = Machine("float32", "torch-cuda", codec_precision="float32")
    assert whole.in_dtype("bfloat16").decoded_in == "tf32"
    assert replace(whole, codec_precision="tf32").in_dtype("bfloat16").decoded_in == "tf32"
    assert replace(whole, codec_precision="bfloat16").in_dtype("float16").decoded_in == "bfloat16"
    half = Machine("bfloat16", "torch-cuda", codec_precision="float32")
    assert half.in_dtype("float32").decoded_in == "float32"


LARGE = DiaJob(text_bytes=300, frames=3000, batch=8)
GB = 10**9


def refusal(check, *arguments) -> str:
    with pytest.raises(ResourceError) as caught:
        check(CONFIGS, *arguments)
    message = str(caught.value)
    assert caught.value.exit_code == 5
    assert "\n" not in message
    assert message.startswith("memory: ")
    return message


@pytest.mark.parametrize(
    ("free", "offered"),
    [
        (
            6.5,
            [
                "dtype bfloat16 (3.",
                "made with convert-weights -q (2.",
                "-q --q-bits 4 (1.",
            ],
        ),
        (2.5, ["made with convert-weights -q (2.", "-q --q-bits 4 (1."]),
        (2.0, ["-q --q-bits 4 (1."]),
        (0.5, []),
    ],
)
def test_loading_offers_what_fits(free, offered):
    message = refusal(check_loading, Machine("float32", "torch-cpu", int(free * GB)))
    assert f"take 6.87 GB on torch-cpu, {free:.2f} GB are free; " in message
    assert message.count("GB)") == len(offered)
    assert all(part in message for part in offered)
    assert message.endswith("would fit" if offered else "free some memory, or use a larger machine")


def test_float16_is_offered_on_cuda_only():
    for backend in ("torch-cpu", "torch-cuda", "torch-mps", "mlx-metal"):
        message = refusal(check_loading, Machine("float32", backend, int(6.5 * GB)))
        assert ("float16 (3" in message.replace("bfloat16", "")) == (backend == "torch-cuda")


def test_a_quantised_model_that_does_not_fit():
    how = QUANTIZATIONS["-q"]
    message = refusal(check_loading, Machine("bfloat16", "mlx-metal", 10**9, how))
    assert "convert-weights" not in message


@pytest.mark.parametrize("backend", ["torch-cpu", "torch-cuda", "mlx-cpu", "mlx-metal"])
def test_running_offers_lengths_and_batches_that_fit(backend):
    """The offered length or batch fits, and one more does not."""

    def takes(**changed) -> int:
        job = replace(LARGE, **changed)
        return estimate(CONFIGS, job, Machine("float32", backend)).running

    free = int(2.6 * GB)
    message = refusal(check_running, LARGE, Machine("float32", backend, free))
    assert "memory: 8 texts of 300 bytes and 34.8 s of speech take " in message
    [batch] = map(int, re.findall(r"a batch of (\d+)", message))
    [frames] = map(int, re.findall(r"max_frames (\d+)", message))
    assert takes(batch=batch) <= free < takes(batch=batch + 1)
    assert takes(frames=frames) <= free < takes(frames=frames + 1)


def test_running_offers_a_dtype():
    free = estimate(CONFIGS, LARGE, Machine("bfloat16", "torch-cpu")).running
    message = refusal(check_running, LARGE, Machine("float32", "torch-cpu", free))
    assert "dtype bfloat16" in message
    assert refusal(check_running, LARGE, Machine("float32", "torch-cpu", 1)).endswith("larger machine")


@pytest.mark.parametrize("backend", ["torch-cpu", "torch-cuda", "mlx-cpu", "mlx-metal"])
@pytest.mark.parametrize("prompt", [0, 500])
def test_running_offers_a_codec_window(backend, prompt):
    """The largest halved window that fits; the message names none if none fits."""
    job = DiaJob(text_bytes=100, frames=1000, prompt_frames=prompt)

    def takes(frames: int) -> int:
        return estimate(CONFIGS, job, Machine("bfloat16", backend, policy=CodecPolicy(frames))).running

    machine = Machine("bfloat16", backend, policy=CodecPolicy(512))
    for frames in (64, 16):
        free = takes(frames)
        [offered] = re.findall(
            r"codec windows of (\d+) frames", refusal(check_running, job, replace(machine, free=free))
        )
        assert takes(int(offered)) <= free
        assert int(offered) >= frames
    least = min(takes(frames) for frames in (256, 128, 64, 32, 16, 8))
    assert "codec windows" not in refusal(check_running, job, replace(machine, free=least - 1))
    check_running(CONFIGS, job, replace(machine, free=takes(512)))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_the_codec_is_given_half_of_what_is_free(backend, dtype):
    """The windows of a policy take the codec memory of a long job with that policy."""

    def takes(policy: CodecPolicy) -> int:
        job = DiaJob(text_bytes=1, frames=3000, prompt_frames=3000)
        guess = estimate(CONFIGS, job, Machine(dtype, backend, policy=policy))
        calls = sum(term.bytes for term in guess.terms if term.name in ("codec", "codec graphs"))
        return max(calls, guess["prompts"].bytes)

    own = CodecPolicy(768, first_frames=5, lead=3) if backend == "torch-cuda" else CodecPolicy(256)
    assert codec_policy(DAC_44KHZ, Machine(dtype, backend, None)) == own
    needed = takes(own)
    for free, whole in ((2 * needed, True), (2 * needed - 2, False)):
        policy = codec_policy(DAC_44KHZ, Machine(dtype, backend, free))
        assert (policy == own) == whole
        assert takes(policy) <= free // 2
    assert codec_policy(DAC_44KHZ, Machine(dtype, backend, 10**6)).max_frames == own.first_frames


@pytest.mark.parametrize("free", [None, 100 * GB])
def test_what_fits_or_is_not_known_passes(free):
    machine = Machine("float32", "torch-cpu", free)
    check_loading(CONFIGS, machine)
    check_running(CONFIGS, LARGE, machine)


@pytest.mark.parametrize("batch", [1, 2, 5, 8])
def test_a_batch_is_as_large_as_memory_allows(batch):
    def takes(batch):
        return estimate(CONFIGS, replace(LARGE, batch=batch), Machine("bfloat16", "mlx-metal")).running

    def fitting(free: int | None) -> int:
        return fitting_batch(CONFIGS, LARGE, Machine("bfloat16", "mlx-metal", free, policy=CodecPolicy()))

    assert fitting(takes(batch)) == batch
    assert fitting(takes(batch) - 1) == max(1, batch - 1)
    assert fitting(None) == 8

"""Estimates against tables and files, and refusals in one line that names a job that would fit.

What is live at once: tests/parity/dia/test_footprint.py.
"""

import math
import re
from dataclasses import replace
from typing import Any

import pytest

from converters.convert import outline
from converters.published import open_published
from converters.rules.dequantize import Quantization
from tests.tiny.dia import write_published
from tests.tiny.networks import dac_config, dia_config, tiny
from tts_core.codecs import dac
from tts_core.codecs.dac import DAC_44KHZ
from tts_core.codecs.memory import (
    FITTED_TO_STREAMS,
    codec_policy,
    dac_call,
    dac_encode,
    dac_fed,
    dac_streams,
    stream_states,
)
from tts_core.codecs.policy import CodecPolicy, own
from tts_core.dia.footprint import PLAN, DiaJob, cache_rows, grid_rows
from tts_core.dia.model import DIA_0626
from tts_core.errors import ResourceError
from tts_core.memory.footprint import OVERLAPS, Footprint
from tts_core.memory.machine import BACKENDS, Machine

FULL = DIA_0626
CONFIGS = {"dia": FULL, "dac": DAC_44KHZ}
JOB = DiaJob(text_bytes=200, frames=860)


def take(job: DiaJob = JOB, backend: str = "torch-cpu", dtype: str = "float32", **given: Any) -> Footprint:
    return PLAN.footprint(CONFIGS, job, Machine(dtype, backend, **given))


def total(job: DiaJob = JOB, backend: str = "torch-cpu", dtype: str = "float32", **given: Any) -> int:
    return take(job, backend, dtype, **given).total


@pytest.mark.parametrize(
    ("dtype", "mode"),
    [
        ("float32", None),
        ("bfloat16", ("affine", 64, 4)),
        ("float16", ("affine", 32, 8)),
        ("float32", ("affine", 128, 3)),
        ("bfloat16", ("mxfp4", 32, 4)),
        ("float16", ("nvfp4", 16, 4)),
    ],
)
def test_weights_are_what_convert_writes(tmp_path, dtype, mode):
    config = dia_config()  # widths 44 and 72: no group size divides some layers
    encoder = replace(config.encoder_config, hidden_size=64, intermediate_size=128)
    config = replace(
        config,
        encoder_config=encoder,
        decoder_config=replace(config.decoder_config, hidden_size=128, cross_hidden_size=64),
    )
    folder = write_published(tmp_path / "dia", tiny(config), tiny(published_codec()))
    how = None if mode is None else Quantization.of(*mode)
    whole = outline(open_published([folder], offline=True), dtype=dtype, quantization=how)
    written = {plan.part.kind: plan.nbytes for plan in whole.parts}
    entry = whole.parts[0].quantization_entry()
    positions = [encoder.max_position_embeddings, config.decoder_config.max_position_embeddings]
    tables = positions[0] * encoder.head_dim + positions[1] * config.decoder_config.head_dim
    tables += max(positions) * config.decoder_config.cross_head_dim
    configs = {"dia": config, "dac": published_codec()}
    found = PLAN.footprint(configs, DiaJob(1, 1), Machine(dtype, "mlx-cpu", quantization=entry))
    assert found.weights == written["dia"] + written["dac"] + 4 * tables


def published_codec():
    return replace(dac_config(), codebook_dim=(4,) * 4)


@pytest.mark.parametrize(
    ("backend", "rows", "room"),
    [("torch-cpu", 256, 256), ("torch-mps", 257, 512), ("mlx-metal", 513, 513), ("torch-cuda", 1, 1)],
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


@pytest.mark.parametrize("backend", BACKENDS)
def test_prompts_are_encoded_before_the_rest(backend):
    long, machine = DiaJob(text_bytes=5, frames=4, prompt_frames=2000), Machine("bfloat16", backend)
    found, encoded = take(long, backend, "bfloat16"), dac_encode(DAC_44KHZ, 2000, machine)
    assert found.running == max(encoded, found.row + found.work)
    assert encoded > dac_call(DAC_44KHZ, dac_fed(DAC_44KHZ, 4, machine), machine)


def streamed(texts, machine):
    """Bytes that only speech which is heard takes on CUDA: kept, and of graphs."""
    states, captured = stream_states(dac.carried(DAC_44KHZ), texts, machine)
    copied, call = dac_streams(DAC_44KHZ, texts, machine)
    return states + copied, captured + call


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_codec_is_beside_the_steps_or_after_them(backend):
    """And bounded by its windows: the longest speech needs no more than a largest one, and a captured one."""
    machine = Machine("float32", backend)
    calls = [dac_call(DAC_44KHZ, dac_fed(DAC_44KHZ, most, machine), machine) for most in (600, 2100, 3056)]
    assert calls[0] <= calls[1] == calls[2]
    found = [take(DiaJob(0, frames), backend) for frames in (3000, 3056)]  # no text has a captured pass
    captured = calls[1] + streamed(1, machine)[1] if backend in OVERLAPS else 0
    assert [one.graphs for one in found] == [captured] * 2
    assert (found[1].work > calls[1] + captured) == (backend in OVERLAPS)
    assert found[1].work >= calls[1] + captured


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_decode_that_nobody_hears_before_its_end_feeds_largest_windows(backend):
    """100 frames in one; a stream's largest window is 56..100 with 12 frames of context."""
    machine = Machine("float32", backend)
    assert dac_fed(DAC_44KHZ, 100, machine) == (56 if backend in FITTED_TO_STREAMS else 100)
    assert dac_fed(DAC_44KHZ, 100, replace(machine, policy=own(backend).in_largest())) == 100


# MB of one H100's allocator, the codec in float32; the bound is that of benchmarks/memory.py
@pytest.mark.parametrize(("batch", "measured", "most"), [(1, 4086, 1.02), (8, 4536, 1.09)])
def test_measured_peaks_on_cuda(batch, measured, most):
    """Beside them graphs keep what the allocator counts as free."""
    job = DiaJob(text_bytes=174, frames=430, batch=batch)
    guess = take(job, "torch-cuda", "bfloat16", codec_precision="float32")
    kept, _ = streamed(batch, Machine("bfloat16", "torch-cuda", codec_precision="float32"))
    assert measured <= (guess.total - guess.graphs - kept) / 1e6 <= most * measured


def test_the_codecs_precision_decides_its_tensors_and_a_copy_of_its_weights():
    """A call of 788 frames took 1.01 GB in TF32 on an H100, 0.78 in float32 and 0.39 in bfloat16."""
    shapes = dac.parameter_shapes(DAC_44KHZ)
    decoder = sum(math.prod(shape) for name, shape in shapes.items() if name.startswith("decoder."))
    for dtype in ("float32", "bfloat16"):
        found, rest = {}, {}
        for precision, gigabytes in (("float32", 0.78), ("tf32", 1.01), ("bfloat16", 0.39)):
            found[precision] = take(DiaJob(0, 3000), "torch-cuda", dtype, codec_precision=precision)
            machine = Machine(dtype, "torch-cuda", codec_precision=precision)
            graphs, (copied, _) = streamed(1, machine)[1], dac_streams(DAC_44KHZ, 1, machine)
            call = found[precision].graphs - graphs
            assert call / 1e9 == pytest.approx(gigabytes, rel=0.08)
            rest[precision] = found[precision].work - 2 * call - graphs - copied
        for precision, size in (("tf32", 4), ("bfloat16", 2)):
            assert rest[precision] == rest["float32"] + size * decoder
        assert found["bfloat16"].total < found["float32"].total < found["tf32"].total


def test_codecs_decode_in_tf32_beside_half_precision_on_cuda_by_default():
    for backend in BACKENDS:
        for dtype in ("float32", "bfloat16", "float16"):
            precision = "tf32" if backend == "torch-cuda" and dtype != "float32" else "float32"
            assert take(backend=backend, dtype=dtype) == take(
                backend=backend, dtype=dtype, codec_precision=precision
            )
    asked = take(backend="mlx-cuda", dtype="bfloat16", codec_precision="tf32")
    assert asked == take(backend="mlx-cuda", dtype="bfloat16"), "MLX has no such switch"


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


def test_float16_is_offered_on_cuda_only():
    for backend in ("torch-cpu", "torch-cuda", "torch-mps", "mlx-metal"):
        message = refusal(PLAN.check_loading, Machine("float32", backend, int(6.5 * GB)))
        assert ("float16 (3" in message.replace("bfloat16", "")) == (backend == "torch-cuda")


@pytest.mark.parametrize("backend", ["torch-cpu", "torch-cuda", "mlx-cpu", "mlx-metal"])
def test_running_offers_lengths_and_batches_that_fit(backend):
    """The offered length or batch fits, and one more does not."""

    def takes(**changed) -> int:
        job = replace(LARGE, **changed)
        return take(job, backend).running

    free = int(2.6 * GB)
    message = refusal(PLAN.check_running, LARGE, Machine("float32", backend, free))
    assert "memory: 8 texts of 34.8 s of speech take " in message
    [batch] = map(int, re.findall(r"a batch of (\d+)", message))
    [frames] = map(int, re.findall(r"max_frames (\d+)", message))
    assert takes(batch=batch) <= free < takes(batch=batch + 1)
    assert takes(frames=frames) <= free < takes(frames=frames + 1)


@pytest.mark.parametrize("backend", ["torch-cpu", "torch-cuda", "mlx-cpu", "mlx-metal"])
def test_running_offers_a_codec_window(backend):
    """The largest halved window that fits; the message names none if none fits."""
    job, machine = DiaJob(100, 1000), Machine("bfloat16", backend, policy=CodecPolicy(512))

    def takes(frames: int) -> int:
        return PLAN.footprint(CONFIGS, job, replace(machine, policy=CodecPolicy(frames))).running

    for frames in (64, 16):
        message = refusal(PLAN.check_running, job, replace(machine, free=takes(frames)))
        [offered] = map(int, re.findall(r"codec windows of (\d+) frames", message))
        assert takes(offered) <= takes(frames)
        assert offered >= frames
    least = min(takes(frames) for frames in (256, 128, 64, 32, 16, 8))
    assert "codec windows" not in refusal(PLAN.check_running, job, replace(machine, free=least - 1))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_the_codec_is_given_half_of_what_is_free(backend, dtype):
    """The windows of a policy take the codec memory of a long job with that policy."""

    def takes(policy: CodecPolicy) -> int:
        machine = Machine(dtype, backend, policy=policy)
        call = dac_call(DAC_44KHZ, dac_fed(DAC_44KHZ, 3000, machine), machine)
        return max(call * (1 + (backend in OVERLAPS)), dac_encode(DAC_44KHZ, 3000, machine))

    own = CodecPolicy(768, first_frames=5, lead=3) if backend == "torch-cuda" else CodecPolicy(256)
    assert codec_policy(DAC_44KHZ, Machine(dtype, backend, None)) == own
    needed = takes(own)
    for free, whole in ((2 * needed, True), (2 * needed - 2, False)):
        policy = codec_policy(DAC_44KHZ, Machine(dtype, backend, free))
        assert (policy == own) == whole
        assert takes(policy) <= free // 2
    assert codec_policy(DAC_44KHZ, Machine(dtype, backend, 10**6)).max_frames == own.first_frames

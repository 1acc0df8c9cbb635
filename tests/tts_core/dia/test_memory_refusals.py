"""A job that cannot fit is refused in one line that names one that would."""

import re
from dataclasses import replace

import pytest

from tts_core.codecs.dac import DAC_44KHZ
from tts_core.codecs.policy import CodecPolicy
from tts_core.dia.memory import Job, check_loading, check_running, codec_policy, estimate, fitting_batch
from tts_core.dia.spec import DIA_0626
from tts_core.errors import ResourceError
from tts_core.memory.fits import QUANTIZATIONS
from tts_core.memory.terms import BACKENDS

FULL = DIA_0626
JOB = Job(text_bytes=300, frames=3000, batch=8)
GB = 10**9


def refusal(check, *arguments, **given) -> str:
    with pytest.raises(ResourceError) as caught:
        check(FULL, DAC_44KHZ, *arguments, **given)
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
                "-q --q-bits 8 (2.",
                "made with convert-weights -q (1.",
            ],
        ),
        (2.5, ["-q --q-bits 8 (2.", "made with convert-weights -q (1."]),
        (2.0, ["made with convert-weights -q (1."]),
        (0.5, []),
    ],
)
def test_loading_offers_what_fits(free, offered):
    message = refusal(check_loading, dtype="float32", backend="torch-cpu", free=int(free * GB))
    assert f"take 6.87 GB on torch-cpu, {free:.2f} GB are free; " in message
    assert message.count("GB)") == len(offered)
    assert all(part in message for part in offered)
    assert message.endswith("would fit" if offered else "free some memory, or use a larger machine")


def test_float16_is_offered_on_cuda_only():
    for backend in ("torch-cpu", "torch-cuda", "torch-mps", "mlx-metal"):
        message = refusal(check_loading, dtype="float32", backend=backend, free=int(6.5 * GB))
        assert ("float16 (3" in message.replace("bfloat16", "")) == (backend == "torch-cuda")


def test_a_quantised_model_that_does_not_fit():
    how = QUANTIZATIONS["-q"]
    message = refusal(check_loading, dtype="bfloat16", backend="mlx-metal", free=10**9, quantization=how)
    assert "convert-weights" not in message


@pytest.mark.parametrize("backend", ["torch-cpu", "torch-cuda", "mlx-cpu", "mlx-metal"])
def test_running_offers_lengths_and_batches_that_fit(backend):
    """The offered length or batch fits, and one more does not."""

    def takes(**changed) -> int:
        job = replace(JOB, **changed)
        return estimate(FULL, DAC_44KHZ, job, dtype="float32", backend=backend).running

    free = int(2.6 * GB)
    message = refusal(check_running, JOB, dtype="float32", backend=backend, free=free)
    assert "memory: 8 texts of 300 bytes and 34.8 s of speech take " in message
    [batch] = map(int, re.findall(r"a batch of (\d+)", message))
    [frames] = map(int, re.findall(r"max_frames (\d+)", message))
    assert takes(batch=batch) <= free < takes(batch=batch + 1)
    assert takes(frames=frames) <= free < takes(frames=frames + 1)


def test_running_offers_a_dtype():
    free = estimate(FULL, DAC_44KHZ, JOB, dtype="bfloat16", backend="torch-cpu").running
    message = refusal(check_running, JOB, dtype="float32", backend="torch-cpu", free=free)
    assert "dtype bfloat16" in message
    assert refusal(check_running, JOB, dtype="float32", backend="torch-cpu", free=1).endswith(
        "larger machine"
    )


@pytest.mark.parametrize("backend", ["torch-cpu", "torch-cuda", "mlx-cpu", "mlx-metal"])
@pytest.mark.parametrize("prompt", [0, 500])
def test_running_offers_a_codec_window(backend, prompt):
    """The largest halved window that fits; the message names none if none fits."""
    job = Job(text_bytes=100, frames=1000, prompt_frames=prompt)

    def takes(frames: int) -> int:
        policy = CodecPolicy(frames)
        return estimate(FULL, DAC_44KHZ, job, dtype="bfloat16", backend=backend, policy=policy).running

    given = {"dtype": "bfloat16", "backend": backend, "policy": CodecPolicy(512)}
    for frames in (64, 16):
        free = takes(frames)
        [offered] = re.findall(
            r"codec windows of (\d+) frames", refusal(check_running, job, free=free, **given)
        )
        assert takes(int(offered)) <= free
        assert int(offered) >= frames
    least = min(takes(frames) for frames in (256, 128, 64, 32, 16, 8))
    assert "codec windows" not in refusal(check_running, job, free=least - 1, **given)
    check_running(FULL, DAC_44KHZ, job, free=takes(512), **given)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_the_codec_is_given_half_of_what_is_free(backend, dtype):
    """The windows of a policy take the codec memory of a long job with that policy."""

    def takes(policy: CodecPolicy) -> int:
        job = Job(text_bytes=1, frames=3000, prompt_frames=3000)
        guess = estimate(FULL, DAC_44KHZ, job, dtype=dtype, backend=backend, policy=policy)
        return max(guess["codec"].bytes, guess["prompts"].bytes)

    own = CodecPolicy(768, lead=2) if backend == "torch-cuda" else CodecPolicy(256)
    assert codec_policy(DAC_44KHZ, dtype=dtype, backend=backend, free=None) == own
    needed = takes(own)
    for free, whole in ((2 * needed, True), (2 * needed - 2, False)):
        policy = codec_policy(DAC_44KHZ, dtype=dtype, backend=backend, free=free)
        assert (policy == own) == whole
        assert takes(policy) <= free // 2
    assert codec_policy(DAC_44KHZ, dtype=dtype, backend=backend, free=10**6).max_frames == 8


@pytest.mark.parametrize("free", [None, 100 * GB])
def test_what_fits_or_is_not_known_passes(free):
    check_loading(FULL, DAC_44KHZ, dtype="float32", backend="torch-cpu", free=free)
    check_running(FULL, DAC_44KHZ, JOB, dtype="float32", backend="torch-cpu", free=free)


@pytest.mark.parametrize("batch", [1, 2, 5, 8])
def test_a_batch_is_as_large_as_memory_allows(batch):
    def takes(batch):
        job = replace(JOB, batch=batch)
        return estimate(FULL, DAC_44KHZ, job, dtype="bfloat16", backend="mlx-metal").running

    given = {"dtype": "bfloat16", "backend": "mlx-metal", "policy": CodecPolicy()}
    assert fitting_batch(FULL, DAC_44KHZ, JOB, free=takes(batch), **given) == batch
    assert fitting_batch(FULL, DAC_44KHZ, JOB, free=takes(batch) - 1, **given) == max(1, batch - 1)
    assert fitting_batch(FULL, DAC_44KHZ, JOB, free=None, **given) == 8

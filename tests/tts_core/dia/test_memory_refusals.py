"""A job that cannot fit is refused in one line that names one that would."""

import re
from dataclasses import replace

import pytest

from tts_core.codecs.dac import DAC_44KHZ
from tts_core.codecs.dac_memory import codec_policy
from tts_core.codecs.policy import CodecPolicy
from tts_core.dia.memory import DiaJob, check_loading, check_running, estimate, fitting_batch
from tts_core.dia.spec import DIA_0626
from tts_core.errors import ResourceError
from tts_core.memory.fits import QUANTIZATIONS
from tts_core.memory.machine import Machine
from tts_core.memory.terms import BACKENDS

CONFIGS = {"dia": DIA_0626, "dac": DAC_44KHZ}
JOB = DiaJob(text_bytes=300, frames=3000, batch=8)
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
        job = replace(JOB, **changed)
        return estimate(CONFIGS, job, Machine("float32", backend)).running

    free = int(2.6 * GB)
    message = refusal(check_running, JOB, Machine("float32", backend, free))
    assert "memory: 8 texts of 300 bytes and 34.8 s of speech take " in message
    [batch] = map(int, re.findall(r"a batch of (\d+)", message))
    [frames] = map(int, re.findall(r"max_frames (\d+)", message))
    assert takes(batch=batch) <= free < takes(batch=batch + 1)
    assert takes(frames=frames) <= free < takes(frames=frames + 1)


def test_running_offers_a_dtype():
    free = estimate(CONFIGS, JOB, Machine("bfloat16", "torch-cpu")).running
    message = refusal(check_running, JOB, Machine("float32", "torch-cpu", free))
    assert "dtype bfloat16" in message
    assert refusal(check_running, JOB, Machine("float32", "torch-cpu", 1)).endswith("larger machine")


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
    check_running(CONFIGS, JOB, machine)


@pytest.mark.parametrize("batch", [1, 2, 5, 8])
def test_a_batch_is_as_large_as_memory_allows(batch):
    def takes(batch):
        return estimate(CONFIGS, replace(JOB, batch=batch), Machine("bfloat16", "mlx-metal")).running

    def fitting(free: int | None) -> int:
        return fitting_batch(CONFIGS, JOB, Machine("bfloat16", "mlx-metal", free, policy=CodecPolicy()))

    assert fitting(takes(batch)) == batch
    assert fitting(takes(batch) - 1) == max(1, batch - 1)
    assert fitting(None) == 8

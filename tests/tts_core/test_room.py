"""What cannot fit is refused in one line that says what would."""

import re
from dataclasses import replace

import pytest

from tts_core.errors import ResourceError
from tts_core.estimate import Job, estimate
from tts_core.published_sizes import DAC_44KHZ, DIA
from tts_core.room import QUANTIZATIONS, check_loading, check_running

FULL = DIA["nari-labs/Dia-1.6B-0626"]
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
    """Whatever is offered fits, and one more of it does not."""

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


@pytest.mark.parametrize("free", [None, 100 * GB])
def test_what_fits_or_is_not_known_passes(free):
    check_loading(FULL, DAC_44KHZ, dtype="float32", backend="torch-cpu", free=free)
    check_running(FULL, DAC_44KHZ, JOB, dtype="float32", backend="torch-cpu", free=free)

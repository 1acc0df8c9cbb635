"""Mistyped names and the hints that follow them."""

from pathlib import Path

import pytest

from tts_core.errors import ResourceError, UsageError, check_names, did_you_mean, explain, memory_error

KNOWN = ["seed", "top_k"]


def test_known_names_pass() -> None:
    check_names(["seed", "top_k"], KNOWN)


@pytest.mark.parametrize(
    ("name", "hint"), [("sead", "did you mean seed"), ("xyz", "it takes seed, top_k"), ("text", "it takes")]
)
def test_unknown_names_are_refused(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match=rf"{name}: .* no such argument; {hint}"):
        check_names(["seed", name], KNOWN)


def test_one_hint_for_a_mistyped_name() -> None:
    assert did_you_mean("sead", ["top_k", "seed"]) == "did you mean seed?"
    assert (
        did_you_mean("voicse", ["voices", "models"], Path("some")) == f"did you mean {Path('some/voices')}?"
    )
    assert did_you_mean("xyz", ["top_k", "seed"]) is None


class OutOfMemoryError(RuntimeError):
    """Named as PyTorch's."""


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OutOfMemoryError("CUDA ran out"),
        RuntimeError("MPS backend out of memory (MPS allocated: 17 GB, max allowed: 18 GB)."),
        RuntimeError("[metal::malloc] Attempting to allocate 9 bytes, greater than the maximum of 8"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
    ],
    ids=str,
)
def test_errors_of_a_full_memory(error: Exception) -> None:
    """By themselves, and as the reason of another error; without the frames that hold what they computed."""
    try:
        try:
            raise error
        except Exception:
            raise RuntimeError("operation failed due to a previous error during capture")  # noqa: B904
    except RuntimeError as caught:
        found = memory_error(caught)
    assert isinstance(found, ResourceError)
    assert str(found).startswith("memory: not enough")
    assert (found.__traceback__, found.__cause__) == (None, None)
    assert explain(error) == (ResourceError.exit_code, str(memory_error(error)))


def test_other_errors_are_not_of_the_memory() -> None:
    for error in (None, ValueError("broken"), UsageError("text: the words out of memory are spoken")):
        assert memory_error(error) is None

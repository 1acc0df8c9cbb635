"""Mistyped names and the hints that follow them."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.metal_errors import INTERACTIVITY, LARGER, LATE, MEMORY, MESSAGES, SHORTAGES, STREAM, TIMEOUT
from tts_core.errors import (
    GenerationError,
    ResourceError,
    UsageError,
    check_names,
    comes_late,
    device_error,
    did_you_mean,
    explain,
    not_there,
    shortage,
)

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


def test_a_missing_path_has_a_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("voice.wav").touch()
    for path, instead, step in (
        ("nosuch", "", f"nosuch is not there; correct the path, which begins at {tmp_path}"),
        (tmp_path / "nosuch", "", "nosuch is not there; correct the path"),
        ("nosuch", "convert it", "nosuch is not there; convert it"),
        ("voise.wav", "convert it", "voise.wav is not there; did you mean voice.wav?"),
        ("no/such", "", "no/such is not there; neither is the folder no; correct the path"),
    ):
        assert str(not_there("model", path, instead)).endswith(step)


class OutOfMemoryError(RuntimeError):
    """Named as PyTorch's."""


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OutOfMemoryError("CUDA ran out"),
        RuntimeError("MPS backend out of memory (MPS allocated: 17 GB, max allowed: 18 GB)."),
        RuntimeError("[malloc] Unable to allocate 9 bytes."),
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
        found = shortage(caught)
    assert isinstance(found, ResourceError)
    assert str(found).startswith("memory: not enough")
    assert (found.__traceback__, found.__cause__) == (None, None)
    assert explain(error) == (ResourceError.exit_code, str(shortage(error)))


def test_other_errors_are_not_of_the_memory() -> None:
    for error in (None, ValueError("broken"), UsageError("text: the words out of memory are spoken")):
        assert shortage(error) is None
        assert device_error(error) is None
        assert not comes_late(error)


NEEDED = {
    MEMORY: ("use a smaller or a quantized model", "close other programs"),
    INTERACTIVITY: ("AGX_RELAX_CDM_CTXSTORE_TIMEOUT=1", "shorter windows"),
    TIMEOUT: ("AGX_RELAX_CDM_CTXSTORE_TIMEOUT=1", "shorter windows"),
    STREAM: ("load the model in the thread that speaks",),
    LARGER: ("give a shorter text or recording", "shorter windows"),
}


@pytest.mark.parametrize("words", MESSAGES, ids=range(len(MESSAGES)))
def test_metals_words(words: str) -> None:
    """A line with what to do, MLX's own words in it; memory and watchdog may be tried again with less."""
    for error in (RuntimeError(words), GenerationError("broken")):
        if isinstance(error, GenerationError):
            error.__cause__ = RuntimeError(words)
        found = device_error(error)
        assert found is not None
        assert str(found).startswith(MESSAGES[words])
        assert words in str(found)
        assert all(advice in str(found) for advice in NEEDED[words])
        assert "\n" not in str(found)
        assert (found.__traceback__, found.__cause__) == (None, None)
        assert (shortage(error) is not None) == (words in SHORTAGES)
        assert comes_late(error) == (words in LATE)
    assert explain(RuntimeError(words)) == (found.exit_code, str(found))
    assert isinstance(found, ResourceError if words in SHORTAGES else GenerationError)


def test_mlx_is_required_that_raises_metals_errors() -> None:
    """0.32.0 is the first release with ml-explore/mlx#3523."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    extras = [one for every in project["optional-dependencies"].values() for one in every]
    lowest = [re.match(r"mlx(?:\[\w+\])?>=([\d.]+)", one) for one in (*project["dependencies"], *extras)]
    found = [tuple(map(int, one[1].split("."))) for one in lowest if one is not None]
    assert len(found) == 4
    assert min(found) >= (0, 32, 0)


def test_words_in_our_own_errors_are_not_metals() -> None:
    for words in MESSAGES:
        error = UsageError(f"text: {words}")
        assert device_error(error) is None
        assert not comes_late(error)
        assert explain(error) == (2, str(error))

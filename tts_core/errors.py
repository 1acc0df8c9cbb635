"""Errors that a user can act on. One line says what was wrong, what was found and what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from tts_core.printable import one_line


class SpeechError(Exception):
    """Base of the errors below; `exit_code` is the commands' exit code.

    As text it is a single line without control characters, even if names from a file contain them.
    """

    exit_code = 1

    def __str__(self) -> str:  # OSError would quote a lone argument
        return one_line(str(self.args[0]) if self.args else "") or type(self).__name__


class UsageError(SpeechError, ValueError):
    """A value that the caller gave cannot be used (text, flag, range)."""

    exit_code = 2


class NotFoundError(SpeechError, FileNotFoundError):
    """A file, folder or hub repository does not exist."""

    exit_code = 3


class CheckpointError(SpeechError, ValueError):
    """A checkpoint is incomplete, corrupt, unsafe, or of an unknown layout."""

    exit_code = 4


class ResourceError(SpeechError, OSError):
    """Too little memory or disk space."""

    exit_code = 5


class BusyError(SpeechError):
    """A server's queue is full.

    retry_after: seconds, a guess of when a place is free.
    """

    exit_code = 5

    def __init__(self, message: str, retry_after: float):
        super().__init__(message)
        self.retry_after = retry_after


class GenerationError(SpeechError, RuntimeError):
    """Generation started and could not finish."""

    exit_code = 6


class CancelledError(SpeechError):
    """The caller canceled a generation."""

    exit_code = 130


# MLX; PyTorch on MPS and CUDA's own; cuBLAS and cuDNN; PyTorch on a CPU
_FULL = ("malloc", "out of memory", "_ALLOC_FAILED", "can't allocate memory")


def explain(error: BaseException) -> tuple[int, str]:
    """Return exit code and one-line message of an expected error, of full memory or disk, or of a bug."""
    code, message = _explained(error)
    return code, one_line(" ".join(message.split("\n")))  # frameworks lay their messages out in lines


def _explained(error: BaseException) -> tuple[int, str]:
    if isinstance(error, SpeechError):
        return error.exit_code, str(error)
    lack = memory_error(error)
    if lack is not None:
        return lack.exit_code, str(lack)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ResourceError.exit_code, f"disk: {error.strerror}; free some space"
    if os.strerror(errno.ENOSPC) in str(error):  # of a compiler that a framework calls
        return ResourceError.exit_code, "disk: the folder of temporary files is full; free some space"
    if isinstance(error, FileNotFoundError) and error.filename is None:  # os.getcwd
        return NotFoundError.exit_code, "the current folder was removed; change to another one"
    if isinstance(error, OSError) and error.filename is not None:
        return NotFoundError.exit_code, f"{os.fsdecode(error.filename)}: {error.strerror or repr(error)}"
    if isinstance(error, OSError) and error.errno == errno.EIO:
        return ResourceError.exit_code, f"disk: {error.strerror}; check the disk, or copy the files"
    return (
        GenerationError.exit_code,
        f"internal: {type(error).__name__}: {error}; run again with --debug and report it",
    )


def memory_error(error: BaseException | None) -> ResourceError | None:
    """Build the error of a full memory from a framework's, or from one that it led to; None for any other.

    It holds no frames, whose arrays would stay in memory.
    """
    while error is not None:
        text = str(error)
        named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
        if named or (not isinstance(error, SpeechError) and any(words in text for words in _FULL)):
            detail = f" ({one_line(text)})" if text else ""
            return ResourceError(
                f"memory: not enough{detail}; use a smaller or a quantized model, or close other programs"
            )
        error = error.__cause__ or error.__context__
    return None


def did_you_mean(name: str, known: Iterable[str], folder: Path = Path()) -> str | None:
    """Write the hint for a mistyped name, with the nearest known name; None if no name is near.

    folder: of the names, if they are files.
    """
    import difflib

    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {folder / close[0]}?" if close else None


def check_names(given: Iterable[str], known: Iterable[str]) -> None:
    """Raise UsageError for the first unknown name, with the nearest known one."""
    known = list(known)
    strange = next((name for name in given if name not in known), None)
    if strange is not None:
        hint = did_you_mean(strange, known) or f"it takes {', '.join(sorted(known))}"
        raise UsageError(f"{strange}: the model's generate takes no such argument; {hint}")


def not_there(what: str, path: str | os.PathLike[str]) -> NotFoundError:
    """Build the error for a missing `path`, with the nearest name beside it, or its missing folder.

    what: the file or flag, as the message should call it.
    """
    path = Path(path)
    folder = path.parent
    if not folder.is_dir():
        return NotFoundError(f"{what}: {path} is not there; neither is the folder {folder}")
    try:
        names = os.listdir(folder)
    except OSError:
        names = []
    hint = did_you_mean(path.name, names, folder)
    return NotFoundError(f"{what}: {path} is not there" + (f"; {hint}" if hint else ""))

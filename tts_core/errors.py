"""Errors that a user can act on. One line says what was wrong, what was found and what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from tts_core.printable import one_line

if TYPE_CHECKING:
    from pathlib import Path


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


class FieldError(UsageError):
    """A field whose value cannot be used. Each door words it: `str` for Python, `worded` for the others.

    field: its name in Python.
    reason: what was wrong and what to do, with "{option}" in place of an option that helps.
    option: that option's name in Python.
    """

    def __init__(self, field: str, reason: str, option: str = ""):
        super().__init__(field, reason, option)
        self.field, self.reason, self.option = field, reason, option

    def __str__(self) -> str:
        return self.worded(lambda name: f"{name}=True")

    def worded(self, option: Callable[[str], str], field: str | None = None) -> str:
        """Word the error in one line. option: writes an option's name.  field: its name for this reader."""
        reason = self.reason.replace("{option}", option(self.option) if self.option else "")
        return one_line(f"{self.field if field is None else field}: {reason}")


class NotFoundError(SpeechError, FileNotFoundError):
    """A file, folder or hub repository does not exist."""

    exit_code = 3


class CheckpointError(SpeechError, ValueError):
    """A checkpoint is incomplete, corrupt, unsafe, or of an unknown layout."""

    exit_code = 4


class ResourceError(SpeechError, OSError):
    """Too little memory or disk space, or a call that took a device longer than its system allows."""

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


def flag_of(option: str) -> str:
    """Return the flag of an option: "skip_unknown" is --skip-unknown."""
    return f"--{option.replace('_', '-')}"


# MLX; PyTorch on MPS and CUDA's own; cuBLAS and cuDNN; PyTorch on a CPU; Metal's command buffers
_FULL = ("malloc", "out of memory", "_ALLOC_FAILED", "can't allocate memory", "Insufficient Memory")
_LARGER = "greater than the maximum"  # of MLX on Metal: one array
_WATCHDOG = ("Impacting Interactivity", "Caused GPU Timeout Error", "Caused GPU Hang Error")
_NO_STREAM = "There is no Stream("
_LATE = "Command buffer execution failed"  # MLX on Metal; the words in brackets name the cause


def explain(error: BaseException, option: Callable[[str], str] | None = None) -> tuple[int, str]:
    """Return exit code and one-line message of an expected error, of full memory or disk, or of a bug.

    option: writes the name of an option, as FieldError.worded takes it; None writes it as Python does.
    """
    if isinstance(error, FieldError) and option is not None:
        return error.exit_code, error.worded(option)
    code, message = _explained(error)
    return code, one_line(" ".join(message.split("\n")))  # frameworks lay their messages out in lines


def _explained(error: BaseException) -> tuple[int, str]:
    if isinstance(error, SpeechError):
        return error.exit_code, str(error)
    named = device_error(error)
    if named is not None:
        return named.exit_code, str(named)
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


def device_error(error: BaseException | None) -> SpeechError | None:
    """Build our error from a framework's about its device: a shortage, or a thread without MLX's stream.

    None for any other. As `shortage`, it holds no frames.
    """
    for cause in _chain(error):
        if _NO_STREAM in str(cause) and not isinstance(cause, SpeechError):
            return GenerationError(
                f"thread: streams of MLX belong to the thread that made them ({one_line(str(cause))}); load "
                "the model in the thread that speaks, and give it no stream of another thread"
            )
    return shortage(error)


def shortage(error: BaseException | None) -> ResourceError | None:
    """Build the error of a device that lacked memory, or time for one call, from a framework's error, or from
    one that it led to; None for any other. A smaller call may succeed.

    It holds no frames, whose arrays would stay in memory.
    """
    for cause in _chain(error):
        text = str(cause)
        detail = f" ({one_line(text)})" if text else ""
        if isinstance(cause, MemoryError) or type(cause).__name__ == "OutOfMemoryError":
            return _full(detail)
        if isinstance(cause, SpeechError):
            continue
        if any(words in text for words in _WATCHDOG):
            return ResourceError(
                f"gpu: macOS ended a call that kept the GPU too long{detail}; set the variable "
                "AGX_RELAX_CDM_CTXSTORE_TIMEOUT=1, choose shorter windows of the codec, or speak fewer texts "
                "at once"
            )
        if _LARGER in text:
            return ResourceError(
                f"memory: an array is larger than the GPU takes{detail}; give a shorter text or recording, "
                "choose shorter windows of the codec, or speak fewer texts at once"
            )
        if any(words in text for words in _FULL):
            return _full(detail)
    return None


def own_error(error: Exception) -> Exception:
    """Return the error of one request's own work: itself, or that of a device.

    Raises it if it may belong to the batch's steps.
    """
    if comes_late(error):
        raise error
    return error if isinstance(error, SpeechError) else shortage(error) or error


def comes_late(error: BaseException | None) -> bool:
    """Return True for an error of Metal's commands, which may belong to an earlier call: what was computed
    since then may be wrong.
    """
    return any(_LATE in str(cause) and not isinstance(cause, SpeechError) for cause in _chain(error))


def _full(detail: str) -> ResourceError:
    return ResourceError(
        f"memory: not enough{detail}; use a smaller or a quantized model, or close other programs"
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that led to it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def did_you_mean(name: str, known: Iterable[str], folder: Path | None = None) -> str | None:
    """Write the hint for a mistyped name, with the nearest known name; None if no name is near.

    folder: of the names, if they are files.
    """
    import difflib

    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {folder / close[0] if folder else close[0]}?" if close else None


def check_names(given: Iterable[str], known: Iterable[str]) -> None:
    """Raise UsageError for the first unknown name, with the nearest known one."""
    known = list(known)
    strange = next((name for name in given if name not in known), None)
    if strange is not None:
        hint = did_you_mean(strange, known) or f"it takes {', '.join(sorted(known))}"
        raise UsageError(f"{strange}: the model's generate takes no such argument; {hint}")


def not_there(what: str, path: str | os.PathLike[str], instead: str = "") -> NotFoundError:
    """Build the error for a missing `path`, with the nearest name beside it, or its missing folder.

    what: the file or flag, as the message should call it.
    instead: what to do if no name is near; by default, to correct the path.
    """
    from pathlib import Path  # rarely needed, and a part of the time of --help

    path = Path(path)
    folder = path.parent
    if not folder.is_dir():
        return NotFoundError(f"{what}: {path} is not there; neither is the folder {folder}; correct the path")
    try:
        names = os.listdir(folder)
    except OSError:
        names = []
    begin = "" if path.is_absolute() else f", which begins at {Path.cwd()}"
    hint = did_you_mean(path.name, names, folder) or instead or f"correct the path{begin}"
    return NotFoundError(f"{what}: {path} is not there; {hint}")

"""What a command says and exits with when an error reaches its top."""

from __future__ import annotations

import errno

from tts_core.errors import GenerationError, NotFoundError, ResourceError, SpeechError


def explain(error: BaseException) -> tuple[int, str]:
    """Exit code and message: an expected error has its own; else full memory or disk, else our fault."""
    if isinstance(error, SpeechError):
        return error.exit_code, str(error)
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or "malloc" in str(error):
        told = f" ({error})" if str(error) else ""
        return (
            ResourceError.exit_code,
            f"memory: not enough{told}; use a smaller or a quantised model, or close other programs",
        )
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ResourceError.exit_code, f"disk: {error.strerror}; free some space"
    if isinstance(error, OSError) and error.filename is not None:
        return NotFoundError.exit_code, f"{error.filename}: {error.strerror}"
    return (
        GenerationError.exit_code,
        f"internal: {type(error).__name__}: {error}; run again with --debug and report it",
    )

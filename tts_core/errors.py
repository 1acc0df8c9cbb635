"""Errors that a user can act on. Each says what was wrong, what was found and what to do, in one line."""


class SpeechError(Exception):
    """Base of the errors below; `exit_code` is what the commands exit with."""

    exit_code = 1


class UsageError(SpeechError, ValueError):
    """A value that the caller gave cannot be used (text, flag, range)."""

    exit_code = 2


class NotFoundError(SpeechError, FileNotFoundError):
    """A file, folder or hub repository is not there."""

    exit_code = 3

    def __str__(self) -> str:  # OSError would quote a lone argument
        return str(self.args[0]) if self.args else ""


class CheckpointError(SpeechError, ValueError):
    """A checkpoint is incomplete, corrupt, unsafe, or of an unknown layout."""

    exit_code = 4


class ResourceError(SpeechError, OSError):
    """Memory or disk does not suffice."""

    exit_code = 5

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class GenerationError(SpeechError, RuntimeError):
    """Generation started and could not finish."""

    exit_code = 6

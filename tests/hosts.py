"""A device whose errors come late, as those of Metal, without a network."""

from __future__ import annotations

from dataclasses import dataclass, field

from tts_core.codecs.policy import CodecPolicy
from tts_core.memory.machine import Machine


@dataclass(eq=False)
class LateHost:
    """A host. errors: of commands that failed, which no call has raised yet."""

    backend: str = "torch-cuda"
    dtype: str = "float32"
    free: int | None = None
    overlaps: bool = False
    errors: list[Exception] = field(default_factory=list)

    def check(self) -> None:
        """Raise the first error, as a call does that starts a command."""
        if self.errors:
            raise self.errors.pop(0)

    def settle(self) -> None:
        """As in Host: raise the first error; the others go with it."""
        errors, self.errors = self.errors, []
        if errors:
            raise errors[0]

    def free_bytes(self) -> int | None:
        """As in Host."""
        return self.free

    def machine(self, policy: CodecPolicy | None = None) -> Machine:
        """As in Host."""
        return Machine(self.dtype, self.backend, self.free, policy=policy)

    def reset_peak(self) -> None:
        """As in Host."""

    def peak_bytes(self) -> int:
        """As in Host."""
        return 0

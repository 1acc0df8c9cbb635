"""The machine of a memory plan: the form in which a model runs, and what is free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tts_core.codecs.policy import CodecPolicy

BACKENDS: tuple[str, ...] = ("torch-cpu", "torch-cuda", "torch-mps", "mlx-cpu", "mlx-metal", "mlx-cuda")
BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


@dataclass(frozen=True)
class Machine:
    """Where and how a model runs.

    dtype: of weights and activations of the large networks, by name.
    backend: one of BACKENDS.
    free: bytes that may still be allocated; None if unknown.
    quantization: of the large networks, as in config.json.
    policy: the codec's windows; None is the default.
    codec_precision: asked of codecs' decoders: float32, tf32 or bfloat16; None is the default.
    measured: bytes of the codec's largest window in a rehearsal, as a share of the stated ones.
    """

    dtype: str
    backend: str
    free: int | None = None
    quantization: Mapping[str, Any] | None = None
    policy: CodecPolicy | None = None
    codec_precision: str | None = None
    measured: float = 1.0

    @property
    def size(self) -> int:
        """Bytes of a number in the large networks."""
        return BYTES[self.dtype]

    @property
    def wide(self) -> int:
        """Bytes of a number in norms, codecs and small networks, which use at least float32."""
        return max(4, self.size)

    @property
    def held(self) -> Mapping[str, Any] | None:
        """The quantization of weights in memory: torch dequantizes when it loads."""
        return None if self.backend.startswith("torch") else self.quantization

    @property
    def decoded_in(self) -> str:
        """The precision of codecs' decoders: float32 outside CUDA, by default TF32 beside half precision."""
        if self.backend != "torch-cuda":
            return "float32"
        return self.codec_precision or ("tf32" if self.size < 4 else "float32")

    def in_dtype(self, dtype: str) -> Machine:
        """Return the machine with another dtype; a codec precision that is the default follows it."""
        usual = replace(self, codec_precision=None)
        return replace(usual if usual.decoded_in == self.decoded_in else self, dtype=dtype)

    def fits(self, needed: int) -> bool:
        """Return True if so many bytes are free, or may be."""
        return self.free is None or needed <= self.free

"""ONNX networks on one thread of the CPU."""

from __future__ import annotations

from typing import Any

from tts_core.errors import NotFoundError
from tts_core.extras import install


def session(content: bytes) -> Any:
    """Open a network. content: of its file.  Raises NotFoundError if onnxruntime is not installed."""
    try:
        import onnxruntime  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise NotFoundError(f"judge: onnxruntime is not installed; {install('judge')}") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors only
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

"""The host of a pipeline whose codec has a precision."""

from __future__ import annotations

from dataclasses import replace

from torch_ref.cuda.precision import Rounded
from torch_ref.host import Host, Weighted
from tts_core.codecs.policy import CodecPolicy
from tts_core.memory.machine import Machine


class CodecHost(Host):
    """The device and dtype of a layer's weight. codec: its precision is that of the memory plan."""

    def __init__(self, layer: Weighted, codec: Rounded):
        super().__init__(layer)
        self.codec = codec

    def machine(self, policy: CodecPolicy | None = None) -> Machine:
        """Describe it for a memory plan, as in Host."""
        return replace(super().machine(policy), codec_precision=self.codec.precision)

"""Qwen3-TTS's codec: Mimi's encoder with fewer codebooks, and a decoder of its own.

Upstream: QwenLM/Qwen3-TTS@022e286, Apache-2.0; parameter names are the published ones, with the entries of a
codebook computed. The encoder is transformers 4.57.3's MimiModel, whose attention has no window.
Differs from upstream: encode runs in windows with exact context; float32 for any dtype of the model.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from torch_ref.codecs.mimi import MimiEncoder
from torch_ref.codecs.qwen3_decoder import Decoder
from torch_ref.layers.carried import Carried, States, StreamState
from torch_ref.limits.precision import Codec, exactly, rounded
from tts_core.codecs.policy import CodecPolicy
from tts_core.codecs.qwen3_codec import POLICY, Qwen3CodecConfig, original_windows
from tts_core.nn.windows import Window


class Qwen3Codec(Codec):
    """The whole codec. Public methods take and return samples (B, L) and codes (B, Q, T).

    policy: window sizes; it may be replaced at any time.
    """

    def __init__(self, config: Qwen3CodecConfig, policy: CodecPolicy = POLICY):
        super().__init__()
        self.config, self.policy = config, policy
        self.sample_rate, self.hop_length = config.sample_rate, config.hop_length
        self.n_codebooks = config.n_codebooks
        self.encoder = MimiEncoder(config.encoder)
        self.decoder = Decoder(config.decoder)

    @exactly
    @torch.inference_mode()
    def encode(self, samples: Tensor | np.ndarray) -> Tensor:
        """Encode a waveform, window by window. (B, L) → (B, Q, ceil(L / hop)) int32."""
        weight = self.encoder.downsample.conv.weight
        samples = torch.as_tensor(samples).to(weight.device, weight.dtype)
        return self.encoder.encode_in_windows(samples, self.n_codebooks, self.policy.max_frames)

    def decode(self, codes: Tensor | np.ndarray) -> Tensor:
        """Decode codes to a waveform in the original's pieces. (B, Q, T) → (B, hop T)."""
        return self.decode_apart(codes, original_windows(codes.shape[2]))

    @rounded
    @torch.inference_mode()
    def decode_apart(self, codes: Tensor | np.ndarray, pieces: Sequence[Window]) -> Tensor:
        """Decode pieces, each without the state of those before, and join them. (B, Q, T) → (B, hop T)."""
        weight = self.encoder.downsample.conv.weight
        codes = torch.as_tensor(codes).to(weight.device)
        made = [weight.new_zeros(codes.shape[0], 0)]
        for piece in pieces:
            states, skipped = None, piece.start - piece.first
            for start, stop in self.policy.even_cuts(piece.last - piece.first):
                cut = codes[:, :, piece.first + start : piece.first + stop]
                samples, states = self.decode_window(cut, states)
                made.append(samples[:, max(0, skipped - start) * self.hop_length :])
        return torch.cat(made, dim=1)

    @rounded
    @torch.inference_mode()
    def decode_window(
        self, codes: Tensor | np.ndarray, states: States | None
    ) -> tuple[Tensor, list[StreamState]]:
        """Decode the next frames of streams at once. Pieces of any lengths add up to one pass over all.

        codes: (B, Q, T), at least one frame → (B, hop T).
        states: after the pieces before; None at the start.
        """
        codes = torch.as_tensor(codes).to(self.encoder.downsample.conv.weight.device)
        carried = Carried(states)
        samples = self.decoder(codes, carried).to(self.encoder.downsample.conv.weight.dtype)
        return samples, carried.after(codes.shape[2])

"""Qwen3-TTS's codec: Mimi's encoder with fewer codebooks, and a decoder of its own.

Upstream: QwenLM/Qwen3-TTS@022e286, Apache-2.0; parameter names are the published ones, with the entries of a
codebook computed. The encoder is transformers 4.57.3's MimiModel, whose attention has no window.
Differs from upstream: encode runs in windows with exact context; float32 for any dtype of the model.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
from mlx import nn

from mlx_port.codecs.mimi import MimiEncoder
from mlx_port.codecs.qwen3_decoder import Decoder
from mlx_port.layers.carried import Carried, States, StreamState
from tts_core.codecs.policy import CodecPolicy
from tts_core.codecs.qwen3_codec import POLICY, Qwen3CodecConfig, original_windows
from tts_core.nn.windows import Window


class Qwen3Codec(nn.Module):
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

    def encode(self, samples: mx.array | np.ndarray) -> mx.array:
        """Encode a waveform, window by window. (B, L) → (B, Q, ceil(L / hop)) int32."""
        samples = mx.array(samples).astype(self.encoder.downsample.conv.weight.dtype)
        return self.encoder.encode_in_windows(samples, self.n_codebooks, self.policy.max_frames)

    def decode(self, codes: mx.array | np.ndarray) -> mx.array:
        """Decode codes to a waveform in the original's pieces. (B, Q, T) → (B, hop T)."""
        return self.decode_apart(codes, original_windows(codes.shape[2]))

    def decode_apart(self, codes: mx.array | np.ndarray, pieces: Sequence[Window]) -> mx.array:
        """Decode pieces, each without the state of those before, and join them. (B, Q, T) → (B, hop T)."""
        codes = mx.array(codes)
        made = [mx.zeros((codes.shape[0], 0), self.encoder.downsample.conv.weight.dtype)]
        for piece in pieces:
            states, skipped = None, piece.start - piece.first
            for start, stop in self.policy.even_cuts(piece.last - piece.first):
                cut = codes[:, :, piece.first + start : piece.first + stop]
                samples, states = self.decode_window(cut, states)
                made.append(samples[:, max(0, skipped - start) * self.hop_length :])
        return mx.concatenate(made, axis=1)

    def decode_window(
        self, codes: mx.array | np.ndarray, states: States | None
    ) -> tuple[mx.array, list[StreamState]]:
        """Decode the next frames of streams at once. Pieces of any lengths add up to one pass over all.

        codes: (B, Q, T), at least one frame → (B, hop T).
        states: after the pieces before; None at the start.
        """
        carried = Carried(states)
        samples = self.decoder(mx.array(codes), carried)
        after = carried.after(codes.shape[2])
        mx.eval(samples, after)  # else the state would keep all that it is cut from
        return samples, after

"""Trace NaN or infinity in Qwen3-TTS's logits to the layer that produced it."""

from __future__ import annotations

import numpy as np

from mlx_port.guard import watched
from mlx_port.host import Host
from mlx_port.qwen3.qwen3 import Qwen3
from tts_core.errors import GenerationError
from tts_core.nn.guard import NotFiniteError
from tts_core.qwen3.rows import Joining


def fault(network: Qwen3, text: Joining, frames: np.ndarray) -> GenerationError:
    """Build the error that names the first layer with NaN or infinity, by running a text again.

    frames: drawn before the logits that are not finite, (Q, T).
    """
    talker, host = network.talker, Host(network.talker.model.codec_embedding)
    with watched(network) as found:
        speaker = None if text.speaker is None else host.to_device(text.speaker)
        heard = None if text.frames is None else host.to_device(text.frames[None])
        x, cache = talker.embed_layout(text.layout, speaker, heard), talker.new_cache()
        hidden = talker(x, 0, cache)
        if frames.shape[1]:
            read = talker.embed_text(
                host.to_device(text.read_with(frames.shape[1], network.config.tts_pad_id))
            )
            spoken = talker.embed_frames(host.to_device(frames[None]))
            hidden = talker(spoken + read[None], x.shape[1], cache)
        talker.logits(hidden[:, -1])
    row = text.positions + frames.shape[1]
    return NotFiniteError(next(iter(found), None), host.dtype, text=1, row=row)

"""Memory of DAC's windows, and the windows that fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from tts_core.codecs import dac
from tts_core.codecs.dac import DacConfig
from tts_core.codecs.dac_calls import even, most_fed, whole_cuts
from tts_core.codecs.memory import widest_layer
from tts_core.codecs.policy import CodecPolicy, fitting, own
from tts_core.memory.machine import Machine
from tts_core.memory.terms import LIVE, OVERLAPS, Term
from tts_core.nn.windows import ConvTranspose, Window

# Tensors that are live at once where Snake is one kernel, or NumPy's on a CPU: measured in float32, on
# an H200 and on Linux; in TF32 on an H100
SNAKE_LIVE = LIVE | {"torch-cuda": 5, "mlx-cpu": 8}
TF32_LIVE = SNAKE_LIVE | {"torch-cuda": 7}


def windows(machine: Machine) -> CodecPolicy:
    """Return the machine's windows, or its backend's default ones."""
    return machine.policy or own(machine.backend)


def decoding(codec: DacConfig, frames: int, machine: Machine, *, batch: int = 1) -> Term:
    """Return the largest call of a decode of `batch` texts of so many frames."""
    policy, backend = windows(machine), machine.backend
    most = most_fed(codec, policy, backend=backend)
    needed = _most_fed(codec, frames, dac.decode_window, partial(whole_cuts, policy, backend))
    alone = min(frames, even(needed, most))
    fed = max(alone, min(batch * alone, most))
    where = f"the decoder's widest layer, {fed} frames"
    if backend in OVERLAPS:  # captured calls have memory of their own
        fed, where = 2 * fed, f"{where}, and as many in captured calls"
    live = TF32_LIVE if _takes_tf32(machine) else SNAKE_LIVE
    return widest_layer("codec", max(decoder_widths(codec, fed)), where, machine, live)


def _takes_tf32(machine: Machine) -> bool:
    """Return True beside networks in half precision on CUDA, where the codec decodes in TF32 by default."""
    return machine.backend in OVERLAPS and machine.dtype != "float32"


def copied(codec: DacConfig, machine: Machine) -> tuple[Term, ...]:
    """Return the copy of the decoder's weights in TF32's layout."""
    if not _takes_tf32(machine):
        return ()
    shapes = dac.parameter_shapes(codec)
    count = sum(math.prod(shape) for name, shape in shapes.items() if name.startswith("decoder."))
    return (Term("codec layout", 4 * count, "the decoder's weights once more, channels last, for TF32"),)


def encoding(codec: DacConfig, frames: int, machine: Machine) -> Term:
    """Return the largest window of an encode of so many frames."""
    fed = _most_fed(codec, frames, dac.encode_window, windows(machine).even_cuts)
    widest = codec.encoder_hidden_size * fed * codec.hop_length
    where = f"the encoder's widest layer, {fed} frames"
    return widest_layer("prompts", widest, where, machine, SNAKE_LIVE)


def decoder_widths(codec: DacConfig, frames: int) -> list[int]:
    """Count the elements of every tensor between the decoder's layers."""
    width, length = codec.decoder_hidden_size, frames
    sizes = [codec.hidden_size * frames, width * frames]
    for layer in dac.decoder_layers(codec)[1:-1]:
        length = layer.output_length(length)
        width //= 2 if isinstance(layer, ConvTranspose) else 1
        sizes.append(width * length)
    return sizes


def codec_policy(codec: DacConfig, machine: Machine) -> CodecPolicy:
    """Choose the largest windows, up to the backend's default, that use at most half of what is free."""

    def takes(policy: CodecPolicy) -> int:
        frames, one = 4 * policy.max_frames, replace(machine, policy=policy)
        return max(decoding(codec, frames, one).bytes, encoding(codec, frames, one).bytes)

    return fitting(takes, machine.backend, machine.free)


def _most_fed(
    codec: DacConfig,
    frames: int,
    window: Callable[..., Window],
    cuts: Callable[[int], Iterator[tuple[int, int]]],
) -> int:
    """Count the frames fed for the largest of the windows that `frames` are cut into."""
    fed = [window(codec, start, stop, frames) for start, stop in cuts(frames)]
    return max((one.last - one.first for one in fed), default=0)

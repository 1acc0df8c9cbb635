"""Memory of DAC's windows, and the windows that fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from tts_core.codecs import dac
from tts_core.codecs.dac import DacConfig
from tts_core.codecs.dac_calls import even, most_fed
from tts_core.codecs.memory import GRAPHS, widest_layer
from tts_core.codecs.policy import CodecPolicy, fitting, own
from tts_core.memory.machine import Machine
from tts_core.memory.terms import LIVE, OVERLAPS, Term
from tts_core.nn.windows import ConvTranspose, Window

# Tensors that are live at once where Snake is one kernel, or NumPy's on a CPU: measured in float32, on
# an H200 and on Linux; in TF32 and bfloat16 on an H100
SNAKE_LIVE = LIVE | {"torch-cuda": 5, "mlx-cpu": 8}
TF32_LIVE = SNAKE_LIVE | {"torch-cuda": 7}
LAYOUTS = {"tf32": ("TF32", 4), "bfloat16": ("bfloat16", 2)}  # that copy weights; bytes of a number
# Its tensors were fitted to windows of a stream, which are shorter than those of speech that nobody hears
# before its end
FITTED_TO_STREAMS = ("mlx-cuda",)


def windows(machine: Machine) -> CodecPolicy:
    """Return the machine's windows, or its backend's default ones."""
    return machine.policy or own(machine.backend)


def decoding(codec: DacConfig, frames: int, machine: Machine, *, batch: int = 1) -> tuple[Term, ...]:
    """Return the largest call of a decode of `batch` texts of so many frames, and what captured calls keep.

    Texts that nobody hears before their end have the longest windows; some may end early, so that windows
    of any length up to theirs share a call.
    """
    policy, backend, precision = windows(machine), machine.backend, machine.decoded_in
    most = most_fed(codec, policy, backend=backend)
    cuts = policy.decode_cuts if backend in FITTED_TO_STREAMS else policy.even_cuts
    alone = min(frames, even(_most_fed(codec, frames, dac.decode_window, cuts), most))
    fed = max(alone, min(batch * alone, most))
    live = TF32_LIVE if precision == "tf32" else SNAKE_LIVE
    size = 2 if precision == "bfloat16" else machine.wide
    where = f"the decoder's widest layer, {fed} frames"
    call = widest_layer("codec", max(decoder_widths(codec, fed)), where, machine, live, size=size)
    if backend not in OVERLAPS:
        return (call,)
    return call, Term(GRAPHS, call.bytes, "as many in captured calls, which keep their memory")


def copied(codec: DacConfig, machine: Machine) -> tuple[Term, ...]:
    """Return the copy of the decoder's weights in the layout of its precision, where that is another one."""
    if machine.decoded_in not in LAYOUTS:
        return ()
    name, size = LAYOUTS[machine.decoded_in]
    shapes = dac.parameter_shapes(codec)
    count = sum(math.prod(shape) for name, shape in shapes.items() if name.startswith("decoder."))
    why = f"the decoder's weights once more, channels last, for {name}"
    return (Term("codec layout", size * count, why),)


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
        decoded = sum(term.bytes for term in decoding(codec, frames, one))
        return max(decoded, encoding(codec, frames, one).bytes)

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

"""Memory of codecs: the tensors that are live at once in their widest layer, and DAC's windows that fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from tts_core.codecs import dac, mimi, vocos
from tts_core.codecs.dac import DacConfig
from tts_core.codecs.dac_calls import even, most_fed
from tts_core.codecs.mimi import MimiConfig
from tts_core.codecs.policy import CALL, ONE_BY_ONE, ROWS, WINDOW, CodecPolicy, fitting, own
from tts_core.codecs.vocos import VocosConfig
from tts_core.memory.footprint import LIVE, OVERLAPS, widest
from tts_core.memory.machine import Machine
from tts_core.nn.windows import ConvTranspose, Window

# Tensors that are live at once where Snake is one kernel, or NumPy's on a CPU: measured in float32, on
# an H200 and on Linux; in TF32 and bfloat16 on an H100
SNAKE_LIVE = LIVE | {"torch-cuda": 5, "mlx-cpu": 7}
TF32_LIVE = 7
LAYOUTS = {"tf32": 4, "bfloat16": 2}  # bytes of a number of the copies of weights in another layout
# Its tensors were fitted to windows of a stream, which are shorter than those of speech that nobody hears
# before its end
FITTED_TO_STREAMS = ("mlx-cuda",)


def most_rows(texts: int, backend: str) -> int:
    """Count the streams that share a call of their codec, at most."""
    return 1 if backend in ONE_BY_ONE else min(ROWS, texts)


def stream_states(carried: int, texts: int, machine: Machine) -> tuple[int, int]:
    """Count the bytes that streams carry from call to call, with the new states that a call computes beside
    those of its streams; and what captured calls keep, which share memory for the states of a call, before
    and after it.

    carried: numbers of a stream.
    """
    rows, overlaps = most_rows(texts, machine.backend), machine.backend in OVERLAPS
    states = texts + rows * (3 if overlaps else 1)
    return machine.wide * carried * states, 3 * machine.wide * carried * rows * overlaps


def stream_frames(frames: int, texts: int, policy: CodecPolicy, machine: Machine) -> tuple[int, int]:
    """Count the frames of the largest call that streams of so many frames share, and of its captured form,
    which has memory of its own.
    """
    rows = most_rows(texts, machine.backend)
    if machine.backend in OVERLAPS:
        most = min(CALL, WINDOW * rows, frames * texts)
        return most, most
    return min(frames * rows, policy.max_frames), 0


def vocos_window(config: VocosConfig, frames: int, most: int, machine: Machine) -> int:
    """Count the bytes of the largest window of Vocos' decode. most: frames that are decoded at a time."""
    return machine.wide * vocos.live_elements(config, min(frames, most))


def mimi_fed(codec: MimiConfig, frames: int, policy: CodecPolicy) -> int:
    """Count the frames fed for the largest window of an encode by Mimi."""
    most = min(frames, policy.max_frames)
    [*_, last] = mimi.encode_windows(codec, 3 * most, most)
    return min(frames, last.stop - last.first)


def dac_fed(codec: DacConfig, frames: int, machine: Machine, *, batch: int = 1) -> int:
    """Count the frames fed for the largest call of DAC's decode of `batch` texts of so many frames.

    Texts that nobody hears before their end have the longest windows; some may end early, so that windows
    of any length up to theirs share a call.
    """
    policy, backend = _windows(machine), machine.backend
    most = most_fed(codec, policy, backend=backend)
    cuts = policy.decode_cuts if backend in FITTED_TO_STREAMS else policy.even_cuts
    alone = min(frames, even(_most_fed(codec, frames, dac.decode_window, cuts), most))
    return max(alone, min(batch * alone, most))


def dac_call(codec: DacConfig, fed: int, machine: Machine) -> int:
    """Count the bytes of a call of DAC's decoder that feeds so many frames."""
    precision = machine.decoded_in
    live = TF32_LIVE if precision == "tf32" else SNAKE_LIVE[machine.backend]
    size = 2 if precision == "bfloat16" else machine.wide
    return live * size * max(decoder_widths(codec, fed))


def dac_layout(codec: DacConfig, machine: Machine) -> int:
    """Count the bytes of a copy of the decoder's weights, channels last, where its precision has one."""
    return LAYOUTS.get(machine.decoded_in, 0) * sum(_decoder(codec).values())


def dac_streams(codec: DacConfig, texts: int, machine: Machine) -> tuple[int, int]:
    """Count the bytes of the weights that streams have in a form of their own, beside `dac_layout`, and of
    their largest captured call; the first one of a stream feeds the delay, too.
    """
    if machine.backend not in OVERLAPS:
        return 0, 0
    raised = sum(count for name, count in _decoder(codec).items() if name.endswith("conv_t1.weight"))
    call = dac_call(codec, min(CALL, 2 * WINDOW * most_rows(texts, machine.backend)), machine)
    return dac_layout(codec, machine) or machine.wide * raised, call


def _decoder(codec: DacConfig) -> dict[str, int]:
    """Count the numbers of each of the decoder's weights."""
    shapes = dac.parameter_shapes(codec)
    return {name: math.prod(shape) for name, shape in shapes.items() if name.startswith("decoder.")}


def dac_encode(codec: DacConfig, frames: int, machine: Machine) -> int:
    """Count the bytes of the largest window of an encode of so many frames."""
    fed = _most_fed(codec, frames, dac.encode_window, _windows(machine).even_cuts)
    return widest(machine, codec.encoder_hidden_size * fed * codec.hop_length, SNAKE_LIVE)


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
    """Choose DAC's largest windows, up to the backend's default, that use at most half of what is free."""

    def takes(policy: CodecPolicy) -> int:
        frames, where = 4 * policy.max_frames, replace(machine, policy=policy)
        call = dac_call(codec, dac_fed(codec, frames, where), where)
        captured = call if machine.backend in OVERLAPS else 0
        return max(call + captured, dac_encode(codec, frames, where))

    return fitting(takes, machine.backend, machine.free)


def _windows(machine: Machine) -> CodecPolicy:
    """Return the machine's windows, or its backend's default ones."""
    return machine.policy or own(machine.backend)


def _most_fed(
    codec: DacConfig,
    frames: int,
    window: Callable[..., Window],
    cuts: Callable[[int], Iterator[tuple[int, int]]],
) -> int:
    """Count the frames fed for the largest of the windows that `frames` are cut into."""
    fed = [window(codec, start, stop, frames) for start, stop in cuts(frames)]
    return max((window.last - window.first for window in fed), default=0)

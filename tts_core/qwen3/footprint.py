"""Memory of Qwen3-TTS."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tts_core.codecs import mimi, qwen3_codec
from tts_core.codecs.memory import mimi_fed, stream_frames, stream_states
from tts_core.codecs.policy import CodecPolicy
from tts_core.codecs.qwen3_codec import Qwen3CodecConfig
from tts_core.config import Configs, config_of
from tts_core.memory.fits import Plan
from tts_core.memory.footprint import (
    LIVE,
    Footprint,
    beside_and_after,
    footprint,
    gated_row,
    layer,
    passes,
    read_at_once,
    rounded,
    sampling,
    scores,
    widest,
)
from tts_core.memory.machine import Machine
from tts_core.memory.weights import held
from tts_core.qwen3.config import BASE, VOICE_DESIGN, Qwen3Config
from tts_core.qwen3.options import PIECE_SECONDS
from tts_core.qwen3.speaker import HOP
from tts_core.text.breaks import Paused
from tts_core.text.pace import longest_seconds, paces

FIXED = ("torch-cuda",)  # backends whose caches are allocated at once

# Live tensors of the codec's widest layer; on a CPU with MLX measured, elsewhere those of other codecs. In
# PyTorch 5.8 are counted, in Snake, where no convolution has its workspace
CODEC_LIVE = LIVE | {"mlx-cpu": 16}
CUDA_LIVE = {"float32": 6, "tf32": 7, "bfloat16": 5}  # in the decoder: 5.9, 6.9 and 5.0 on an H200
TAGS = 16  # positions besides the text: its role, tags and marks
RECORDING = 10.0  # seconds of a Base model's recording


@dataclass(frozen=True)
class Qwen3Job:
    """An upper bound on texts that share steps.

    frames: of speech.
    prompt: positions that are read before it, those of a recording among them.
    recording: frames of a recording, which is encoded, and with its transcript decoded before the speech.
    """

    frames: int
    prompt: int = 64
    recording: int = 0
    batch: int = 1

    @property
    def positions(self) -> int:
        """Positions of a text that are cached: all but the last frame."""
        return self.prompt + self.frames - 1


def qwen3_footprint(configs: Configs, job: Qwen3Job, machine: Machine) -> Footprint:
    """Count the bytes of a job: a recording is encoded, then prompts are read and steps run, with the codec
    after or beside.
    """
    config = config_of(configs, "qwen3", Qwen3Config)
    codec = config_of(configs, "qwen3_codec", Qwen3CodecConfig)
    stack, other, size = config.talker, config.predictor, machine.size
    position = 2 * stack.num_key_value_heads * stack.head_dim * size  # of a layer
    cache = job.batch * stack.num_hidden_layers * position * (job.positions + 1)
    row = max(
        gated_row(
            stack.hidden_size, stack.intermediate_size, stack.num_attention_heads * stack.head_dim, size
        )
        for stack in (stack, other)
    )
    read = row + 3 * size * config.text_hidden_size
    together = read_at_once(job.batch, job.prompt, machine.backend)
    prompt = layer(together, read, heads=stack.num_attention_heads, keys=job.prompt)
    captured_passes = passes(
        job.batch, job.prompt, read, heads=stack.num_attention_heads, backend=machine.backend
    )
    if machine.backend not in FIXED:  # a layer's while it grows
        prompt += stack.num_hidden_layers * position * together
        cache = job.batch * (stack.num_hidden_layers + 1) * position * rounded(job.positions)
    predicted = 2 * size * other.num_key_value_heads * other.head_dim * config.n_codebooks
    step = scores(job.batch * stack.num_attention_heads, job.positions) + job.batch * (
        row + other.num_hidden_layers * predicted + 4 * config.numbers + sampling(config.vocab_size)
    )
    states, graphs = stream_states(qwen3_codec.carried(codec.decoder), job.batch, machine)
    policy = machine.policy or qwen3_codec.POLICY
    shared, replayed = stream_frames(job.frames, job.batch, policy, machine)
    fed = max(min(max(job.recording, job.frames), policy.max_frames), shared) + replayed
    live = CODEC_LIVE | {"torch-cuda": CUDA_LIVE[machine.decoded_in]}
    sound = graphs + widest(machine, qwen3_codec.widest(codec.decoder, fed), live)
    beside, after = beside_and_after(machine, sound)
    row_bytes = cache + states
    tables = config.max_positions * stack.head_dim + config.n_codebooks * other.head_dim
    return footprint(
        machine,
        weights=held(configs, ("qwen3", "qwen3_codec"), machine, tables=tables),
        row=row_bytes,
        stages=(max(prompt, step) + captured_passes + beside, captured_passes + after),
        freed=(_recording(config, codec, job, machine, policy),),
        minute=60 * codec.frame_rate * job.batch * stack.num_hidden_layers * position,
        sound=sound,
        graphs=graphs + captured_passes,
    )


def _recording(
    config: Qwen3Config, codec: Qwen3CodecConfig, job: Qwen3Job, machine: Machine, policy: CodecPolicy
) -> int:
    """Count the bytes of the codec's encoder, or of the speaker encoder: its last blocks' sum with mean and
    deviation, which no window limits.
    """
    if not job.recording:
        return 0
    recording, speaker = mimi.widest(codec.encoder, mimi_fed(codec.encoder, job.recording, policy)), 0
    if (encoder := config.speaker_encoder) is not None:
        seconds = job.recording / codec.frame_rate
        speaker = 3 * encoder.enc_channels[-1] * math.ceil(seconds * encoder.sample_rate / HOP)
    return widest(machine, max(recording, speaker), CODEC_LIVE)


def _longest(configs: Configs, text: Paused | None, seconds: float | None) -> Qwen3Job:
    """A piece, after a recording of 10 s where the model takes one. A byte is a position at most."""
    config, rate = config_of(configs, "qwen3", Qwen3Config), _frame_rate(configs)
    cut = None if config.mode == VOICE_DESIGN else round(PIECE_SECONDS * math.sqrt(math.prod(paces(None))))
    characters, longest = cut or 1000, PIECE_SECONDS
    if text is not None:
        piece = text.blanked[:cut]
        characters, longest = len(piece.encode()), longest_seconds(piece, None)
    recording = math.ceil(RECORDING * rate) if config.mode == BASE else 0
    frames = math.ceil((longest if seconds is None else seconds) * rate)
    prompt = min(TAGS + characters + 2 * recording, config.max_positions - 1)
    return Qwen3Job(min(frames, config.max_positions - prompt), prompt, recording)


def _frame_rate(configs: Configs) -> float:
    return config_of(configs, "qwen3_codec", Qwen3CodecConfig).frame_rate


PLAN = Plan(qwen3_footprint, _longest, _frame_rate, FIXED, serial=True)

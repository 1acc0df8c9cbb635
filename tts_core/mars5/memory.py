"""How much memory MARS5 takes on a backend, each part told in bytes; the counterpart of estimate.py.

Its phases follow one another: the reference is encoded, the autoregressive network fills its cache, the
diffusion runs over all frames, the vocoder makes the wave. What one held is gone when the next begins, so
the largest of them counts. Sizes come from the tables that the networks are built from; what is live at once
is counted in the code of both sides, constants are measured by benchmarks/mars5_memory.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tts_core import models
from tts_core.codecs import vocos
from tts_core.codecs.encodec import EncodecConfig
from tts_core.codecs.policy import CodecPolicy
from tts_core.codecs.vocos import VocosConfig
from tts_core.dia.memory import BYTES, LIBRARIES, LIVE, LOGITS, SCORES, Estimate, Term
from tts_core.mars5.config import CodecLMConfig, ResidualTransformerConfig
from tts_core.mars5.sampling import MAX_LEN

HEARD = CodecPolicy().max_frames  # frames that the codec encodes at a time
SPOKEN = 1024  # frames that the vocoder decodes at a time, at the most
DRAWN = 4  # copies of the cells' logits while they are drawn from, beside those that the heads gave


@dataclass(frozen=True)
class Mars5Job:
    """What is to be said, at its longest: one piece of a text.

    prompt_ids: of text, and of the reference's codes in a deep clone.  frames: new ones.
    """

    prompt_ids: int
    frames: int
    prompt_frames: int = 0
    deep: bool = False
    guided: bool = True
    max_len: int = MAX_LEN  # ids, the prompt's included

    @property
    def cells(self) -> int:
        """Frames that the diffusion runs over: a deep clone's reference goes in twice."""
        return self.frames + 2 * self.prompt_frames * self.deep


class Mars5Estimate(Estimate):
    """Bytes on one backend. weights: of the autoregressive network; codec_weights: of all others; source: the
    diffusion's run; codec: the vocoder's; prompts: the reference's.
    """

    @property
    def terms(self) -> tuple[Term, ...]:
        """Every line, in the order of a table."""
        kept = self.weights, self.codec_weights
        return (*kept, self.prompts, self.cache, self.activations, self.source, self.codec, self.libraries)

    @property
    def running(self) -> int:
        """What a generation adds at its peak: its phases follow one another."""
        language = self.cache.bytes + self.activations.bytes
        return max(self.prompts.bytes, language, self.source.bytes, self.codec.bytes)


def estimate(
    configs: Mapping[str, Any],
    job: Mars5Job,
    *,
    dtype: str,
    backend: str,
    quantization: Mapping[str, Any] | None = None,
) -> Mars5Estimate:
    """What `job` takes.

    configs: of the model's parts by kind.  dtype: of the two transformers; codec and vocoder have at least
    float32.  quantization: group_size, bits and mode, as config.json has them; torch dequantises when it
    loads.
    """
    size, wide = BYTES[dtype], max(4, BYTES[dtype])
    ar, nar = configs["mars5"], configs["mars5_nar"]
    quantization = None if backend.startswith("torch") else quantization
    others = [weight_bytes(kind, configs[kind], dtype, quantization) for kind in OTHERS]
    return Mars5Estimate(
        backend,
        Term("AR", weight_bytes("mars5", ar, dtype, quantization), _named(dtype, quantization)),
        Term("others", sum(others), f"weights of NAR, as the AR's, codec and vocoder, float{8 * wide}"),
        _cache(ar, job, size),
        _diffusion(nar, job, size),
        _activations(ar, job, size),
        _vocoder(configs["vocos"], job, wide),
        _voice(ar, nar, configs["encodec"], job, wide, backend),
        Term("libraries", LIBRARIES[backend], "workspaces and caches of BLAS and convolutions"),
    )


OTHERS = ("mars5_nar", "encodec", "vocos")


def _named(dtype: str, quantization: Mapping[str, Any] | None) -> str:
    if quantization is None:
        return f"its weights, {dtype}, norms float32"
    bits, group = quantization["bits"], quantization["group_size"]
    return f"its weights, {quantization['mode']}, {bits} bits in groups of {group}; the rest {dtype}"


def weight_bytes(kind: str, config: Any, dtype: str, quantization: Mapping[str, Any] | None = None) -> int:
    """A network's tensors as they lie in memory, with scales and biases where they are quantised."""
    known, total = models.network(kind), 0
    for name, shape in known.parameter_shapes(config).items():
        elements, size = math.prod(shape), BYTES[dtype]
        if known.stays_float32(name):
            total += max(4, size) * elements
            continue
        # a layer's own entry, or all's
        how = (quantization or {}).get(name.removesuffix(".weight"), quantization)
        if not how or not known.is_large(name) or shape[-1] % how["group_size"]:
            total += size * elements
            continue
        per_scale = 2 * size if how["mode"] == "affine" else 1
        total += elements * how["bits"] // 8 + elements // how["group_size"] * per_scale
    return total


def _cache(config: CodecLMConfig, job: Mars5Job, size: int) -> Term:
    room = min(config.sliding_window, job.max_len)
    held = 2 * config.num_hidden_layers * config.hidden_size * size * room
    tables = 2 * 4 * job.max_len * config.head_dim
    return Term("cache", held + tables, f"keys and values of {room} ids, allocated at once")


def _activations(config: CodecLMConfig, job: Mars5Job, size: int) -> Term:
    row = size * max(2 * config.hidden_size + 3 * config.intermediate_size, 6 * config.hidden_size)
    read = (job.prompt_ids + 1) * row + _scores(config.num_attention_heads, job.prompt_ids + 1)
    return Term(
        "activations",
        read + LOGITS * 4 * config.vocab_size,
        f"one layer of {job.prompt_ids} ids of prompt; logits and their candidates",
    )


def _diffusion(config: ResidualTransformerConfig, job: Mars5Job, size: int) -> Term:
    streams, wide = 2 if job.guided else 1, max(4, size)
    rows = streams * job.cells
    layer = rows * (wide * 3 * config.hidden_size + size * 3 * config.intermediate_size)
    layer += _scores(streams * config.num_attention_heads, job.cells)
    drawn = job.cells - job.prompt_frames * job.deep
    logits = wide * drawn * config.n_output_codebooks * config.n_classes
    heads = max(2 * streams, streams + DRAWN) * logits
    return Term("NAR", max(layer, heads), f"{job.cells} frames, {streams} rows: one layer, or all logits")


def _voice(
    ar: CodecLMConfig,
    nar: ResidualTransformerConfig,
    codec: EncodecConfig,
    job: Mars5Job,
    size: int,
    backend: str,
) -> Term:
    fed = min(job.prompt_frames, 2 * HEARD)
    encoded = size * LIVE[backend] * codec.num_filters * fed * codec.hop_length
    frames, vectors = job.prompt_frames + 1, []
    for config in (ar, nar):
        row = size * 3 * (config.hidden_size + config.speaker_intermediate_size)
        vectors.append(frames * row + _scores(config.speaker_heads, frames))
    return Term("voice", max(encoded, *vectors), f"the codec's widest layer, {fed} frames; speaker vectors")


def _vocoder(config: VocosConfig, job: Mars5Job, size: int) -> Term:
    frames = min(job.frames, SPOKEN) + 2 * vocos.decode_lookahead(config)
    row = 2 * config.intermediate_dim + 4 * config.dim + 6 * config.n_bins + 3 * config.n_fft
    matrix = 2 * config.n_bins * config.n_fft
    return Term("vocoder", size * (frames * row + matrix), f"Vocos, a window of {frames} frames")


def _scores(heads: int, rows: int) -> int:
    """Attention's score matrix in float32, twice; over the budget it comes in blocks."""
    return min(SCORES, 2 * 4 * heads * rows * rows)

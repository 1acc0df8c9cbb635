"""Known facts about the MPS backend, each with its rules or the reason for having none.

Sections: 1 convolution, 2 attention, 3 matrix products, 4 folding, Fourier transforms, complex numbers, 5
sampling, scans, sorting, indexing, 6 layers, dtypes, memory, compilation.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fact:
    """One fact with its rules, or a reason."""

    section: int
    about: str
    rules: tuple[str, ...] = ()
    reason: str = ""


FACTS = (
    Fact(1, "convolution forward over 65,536", ("conv-65536",)),
    Fact(
        1,
        "pytorch#152278: conv1d over 65,536 raises",
        reason="open; the check of conv-65536, which macOS 15.1 and later do not reach",
    ),
    Fact(1, "pytorch#188335: grouped convolution of a batch, kernel of 256", ("conv-large-kernel",)),
    Fact(1, "pytorch#169342: convolution of chunk() views of a batch", ("conv-chunk-batched",)),
    Fact(1, "pytorch#180984: slice of a channels-last tensor", ("conv-channels-last-slice",)),
    Fact(1, "pytorch#192212: convolution with a strided weight", ("conv-weight-strided",)),
    Fact(1, "pytorch#197114: convolution in three dimensions on macOS 26", ("conv3d-macos-26",)),
    Fact(1, "transposed convolution over 65,536", ("conv-transpose-65536",)),
    Fact(1, "convolution backward, gradient of the input", ("conv-input-grad-65536",)),
    Fact(1, "convolution backward, gradient of the weight", ("conv-weight-grad-65536",)),
    Fact(
        1,
        "PYTORCH_ENABLE_MPS_FALLBACK=1 does not help there",
        reason="an environment variable, not a call; the error comes from inside an existing kernel",
    ),
    Fact(1, "ConvTranspose1d with output_padding >= stride", ("conv-transpose-output-padding",)),
    Fact(1, "ConvTranspose3d", ("conv-transpose-3d",)),
    Fact(1, "kernel width mismatch in backward, macOS 14.0 and 14.1", ("conv1d-backward-macos-14",)),
    Fact(1, "constant padding of more than three axes", ("pad-over-3d",)),
    Fact(2, "mask dtype not in the graph's key", ("sdpa-mask-dtype-cached",)),
    Fact(2, "scale not in the graph's key", ("sdpa-scale-cached",)),
    Fact(2, "inputs that are not contiguous in the vector kernels", ("sdpa-strided",)),
    Fact(2, "partly broadcast mask in the vector kernels", ("sdpa-mask-broadcast",)),
    Fact(2, "values of another width", ("sdpa-value-width",)),
    Fact(2, "batches or heads broadcast between the inputs", ("sdpa-leading-broadcast",)),
    Fact(2, "causal mask leak in half precision", ("sdpa-half-causal",)),
    Fact(
        2,
        "alignment of is_causal",
        reason="upper left in every release; only development builds before 2.5 built an (L, L) mask",
    ),
    Fact(
        2,
        "is_causal masks with -1e20",
        reason="harmless: it becomes -inf in float16, and no causal row is empty",
    ),
    Fact(2, "attn_mask and is_causal together", ("sdpa-mask-and-causal",)),
    Fact(2, "dropout", reason="the public function then composes other operators, whose rules hold"),
    Fact(2, "score matrix over 2^32 bytes", ("sdpa-scores-4gib",)),
    Fact(2, "score matrix of 2^31 elements", ("sdpa-scores-31-bit",)),
    Fact(
        2,
        "buffer over maxBufferLength",
        reason="depends on the machine's memory; blocks of 256 MiB stay below it",
    ),
    Fact(2, "accuracy of half precision on long rows", ("sdpa-half-long-rows",)),
    Fact(
        2,
        "pytorch#181575: prefill kernels",
        reason="new in torch 2.13, not a fault: their calls build no score matrix, so its rules do not hold",
    ),
    Fact(2, "integer inputs", ("sdpa-integer",)),
    Fact(2, "backward", reason="composes other operators with a whole score matrix; no failure of its own"),
    Fact(3, "products over 2^32 elements", ("bmm-result-32-bit", "matmul-matrix-32-bit")),
    Fact(3, "the same with a strided operand", ("bmm-tiled-strides",)),
    Fact(3, "sums over 32,767 elements or more on M1 and M2", ("mm-long-sum", "bmm-long-sum")),
    Fact(3, "linear in half precision without a bias", ("linear-half-unstable",)),
    Fact(3, "linear with a strided weight", ("linear-weight-view-m5",)),
    Fact(3, "integer linear", ("linear-integer",)),
    Fact(3, "bfloat16 products on M1 and M2", reason="slower than float16, not wrong; one report"),
    Fact(4, "irfft of an odd length", ("irfft-odd",)),
    Fact(4, "rank of a transform", ("fft-over-4d",)),
    Fact(4, "complex dtypes", ("complex128",)),
    Fact(4, "real times complex", ("real-times-complex",)),
    Fact(4, "imaginary part of a conjugate", ("conj-imag",)),
    Fact(5, "multinomial", ("multinomial-domain",)),
    Fact(5, "argmax and argmin", ("argmax-macos-27",)),
    Fact(5, "sort and argsort", ("sort-int64", "sort-first-axis", "sort-padding")),
    Fact(5, "cumprod, cummax, kthvalue, logcumsumexp", ("missing-kthvalue", "missing-logcumsumexp")),
    Fact(5, "index_select and embedding over 2^31 elements", ("gather-31-bit",)),
    Fact(5, "scatter_reduce", ("scatter-reduce-mean",)),
    Fact(5, "unique with inverse", ("unique-inverse",)),
    Fact(5, "dimensions and sizes over 2^31", ("dimension-31-bit", "tensor-31-bit")),
    Fact(5, "rank over 16", ("rank-16",)),
    Fact(
        5,
        "where and advanced indexing over 2^24 elements",
        reason="closed upstream with no exact condition or release to state",
    ),
    Fact(6, "LSTM", ("lstm-leak", "lstm-projections")),
    Fact(6, "GRU", reason="composes other operators in every release"),
    Fact(6, "layer_norm backward", ("layer-norm-backward",)),
    Fact(
        6, "group_norm and rms_norm", reason="composed of other operators before they had kernels; no failure"
    ),
    Fact(6, "float64", ("float64",)),
    Fact(6, "float8", ("float8",)),
    Fact(6, "sum of uint8", ("uint8-sum",)),
    Fact(6, "LU, QR, SVD, eigh", ("missing-qr", "missing-svd", "missing-eigh")),
    Fact(
        6,
        "PYTORCH_ENABLE_MPS_FALLBACK",
        reason="an environment variable; the rules list operators without a kernel",
    ),
    Fact(6, "PYTORCH_MPS_HIGH_WATERMARK_RATIO", reason="a setting of the allocator, not a call"),
    Fact(6, "PYTORCH_MPS_LOW_WATERMARK_RATIO", reason="a setting of the allocator, not a call"),
    Fact(6, "out of memory", reason="depends on the machine; memory is estimated before a model is loaded"),
    Fact(6, "PYTORCH_MPS_PREFER_METAL and FAST_MATH", reason="settings, not calls"),
    Fact(
        6,
        "jamiepine/voicebox#905: a graph per shape, and a hang in its compilation",
        reason=(
            "one report (macOS 26, M4 Max): with growing caches the compilation for a new shape takes "
            "minutes and raises nothing; after how many shapes is not known. Attention of up to 8 rows runs "
            "in kernels without a graph if no rule forbids it; blocks and prompts have a graph per length"
        ),
    ),
    Fact(
        6,
        "actions/runner-images#14380: other numbers on macOS 26 than on 15",
        reason=(
            "MPSGraph 6.4 and 6.5 of macOS 26 against 5.6, with torch 2.8 to 2.13, in SAM2; no operator is "
            "named. The workflow runs the tests marked mps on both systems"
        ),
    ),
    Fact(6, "pytorch#185663", reason="thread not read: it could not be found; nothing is claimed about it"),
    Fact(6, "torch.compile", reason="nothing here is compiled by torch"),
    Fact(
        6,
        "torch.mps.empty_cache",
        reason="hides faults that depend on the allocator; nothing here calls it",
    ),
)

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
    Fact(1, "convolution forward over 65,536", ("conv-65536", "conv-channels-silent")),
    Fact(1, "transposed convolution over 65,536", ("conv-transpose-65536",)),
    Fact(1, "convolution backward, gradient of the input", ("conv-input-grad-65536",)),
    Fact(1, "convolution backward, gradient of the weight", ("conv-weight-grad-65536",)),
    Fact(
        1,
        "PYTORCH_ENABLE_MPS_FALLBACK=1 does not help there",
        reason="an environment variable, not a call; the error comes from inside an existing kernel",
    ),
    Fact(1, "convolution with channels-last operands", ("conv-channels-last",)),
    Fact(1, "ConvTranspose1d with output_padding >= stride", ("conv-transpose-output-padding",)),
    Fact(1, "ConvTranspose3d", ("conv-transpose-3d",)),
    Fact(1, "kernel width mismatch in backward, macOS 14.0 and 14.1", ("conv1d-backward-macos-14",)),
    Fact(1, "constant padding of more than three axes", ("pad-over-3d",)),
    Fact(2, "mask shape not in the graph's key", ("sdpa-mask-shape-cached",)),
    Fact(2, "mask dtype not in the graph's key", ("sdpa-mask-dtype-cached",)),
    Fact(2, "scale not in the graph's key", ("sdpa-scale-cached",)),
    Fact(2, "grouped heads abort", ("sdpa-gqa",)),
    Fact(2, "grouped heads without the flag", ("sdpa-heads-unchecked",)),
    Fact(2, "grouped heads in the two-pass kernel", ("sdpa-gqa-two-pass",)),
    Fact(2, "keys not a multiple of 32 in the vector kernels", ("sdpa-keys-32",)),
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
    Fact(2, "row without keys", ("sdpa-empty-row",)),
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
        "NaN in Apple's fused kernel on macOS 15",
        reason="torch has avoided that kernel since 2.5",
    ),
    Fact(2, "inputs of three dimensions", ("sdpa-3d",)),
    Fact(2, "inputs of more than four dimensions", ("sdpa-5d",)),
    Fact(2, "integer inputs", ("sdpa-integer",)),
    Fact(2, "backward", reason="composes other operators with a whole score matrix; no failure of its own"),
    Fact(3, "products over 2^32 elements", ("bmm-result-32-bit", "matmul-matrix-32-bit")),
    Fact(3, "the same with a strided operand", ("bmm-tiled-strides",)),
    Fact(3, "sums over 32,767 elements or more on M1 and M2", ("mm-long-sum", "bmm-long-sum")),
    Fact(3, "sizes over 32,768 overflow", ("matmul-16-bit",)),
    Fact(3, "linear in half precision without a bias", ("linear-half-unstable",)),
    Fact(3, "linear with a strided weight", ("linear-weight-strided", "linear-weight-view-m5")),
    Fact(3, "integer linear", ("linear-integer",)),
    Fact(3, "bfloat16 products on M1 and M2", reason="slower than float16, not wrong; one report"),
    Fact(4, "im2col", ("unfold",)),
    Fact(4, "col2im", ("fold",)),
    Fact(4, "overlap-add without col2im", reason="a remedy, torch_ref.layers.istft, not a limit"),
    Fact(4, "Fourier transforms", ("fft-missing", "fft-macos-13")),
    Fact(4, "irfft and two-sided transforms wrong", ("irfft-2.3", "irfft-odd", "fft-two-sided-14.4")),
    Fact(4, "rank of a transform", ("fft-over-4d",)),
    Fact(4, "stft and istft", ("unfold-backward",)),
    Fact(4, "complex dtypes", ("complex", "complex128", "view-as-complex", "angle")),
    Fact(4, "real times complex", ("real-times-complex",)),
    Fact(4, "imaginary part of a conjugate", ("conj-imag",)),
    Fact(5, "topk", ("topk-16",)),
    Fact(5, "multinomial", ("multinomial-domain", "multinomial-32k")),
    Fact(5, "argmax and argmin", ("argmax-macos-13", "argmax-macos-27")),
    Fact(5, "sort and argsort", ("sort-int64", "sort-first-axis", "sort-padding")),
    Fact(5, "cumsum", ("cumsum-int64", "cumsum-bool")),
    Fact(
        5,
        "cumprod, cummax, kthvalue, logcumsumexp",
        ("missing-cumprod", "missing-cummax", "missing-kthvalue", "missing-logcumsumexp"),
    ),
    Fact(5, "searchsorted and bucketize", ("missing-searchsorted", "missing-bucketize")),
    Fact(5, "index_select and embedding over 2^31 elements", ("gather-31-bit",)),
    Fact(5, "scatter_reduce", ("missing-scatter-reduce", "scatter-reduce-mean")),
    Fact(5, "unique with inverse", ("unique-inverse",)),
    Fact(5, "isin", ("missing-isin", "isin-integer")),
    Fact(5, "nonzero", ("nonzero-macos-13",)),
    Fact(5, "dimensions and sizes over 2^31", ("dimension-31-bit", "tensor-31-bit")),
    Fact(5, "rank over 16", ("rank-16",)),
    Fact(
        5,
        "where and advanced indexing over 2^24 elements",
        reason="closed upstream with no exact condition or release to state",
    ),
    Fact(6, "LSTM", ("lstm-wrong", "lstm-leak", "lstm-projections")),
    Fact(6, "GRU", reason="composes other operators in every release"),
    Fact(6, "weight_norm", ("weight-norm",)),
    Fact(6, "layer_norm backward", ("layer-norm-backward",)),
    Fact(
        6, "group_norm and rms_norm", reason="composed of other operators before they had kernels; no failure"
    ),
    Fact(6, "bfloat16", ("bfloat16",)),
    Fact(6, "float64", ("float64",)),
    Fact(6, "float8", ("float8",)),
    Fact(6, "int64", ("int64-narrowed",)),
    Fact(6, "sum of uint8", ("uint8-sum",)),
    Fact(6, "LU, QR, SVD, eigh", ("missing-lu", "missing-qr", "missing-svd", "missing-eigh")),
    Fact(
        6,
        "PYTORCH_ENABLE_MPS_FALLBACK",
        reason="an environment variable; the rules list operators without a kernel",
    ),
    Fact(6, "PYTORCH_MPS_HIGH_WATERMARK_RATIO", reason="a setting of the allocator, not a call"),
    Fact(6, "PYTORCH_MPS_LOW_WATERMARK_RATIO", reason="a setting of the allocator, not a call"),
    Fact(6, "out of memory", reason="depends on the machine; memory is estimated before a model is loaded"),
    Fact(6, "PYTORCH_MPS_PREFER_METAL and FAST_MATH", reason="settings, not calls"),
    Fact(6, "graph caches per shape", reason="growing lengths cost time and memory; nothing fails"),
    Fact(6, "torch.compile", reason="nothing here is compiled by torch"),
    Fact(
        6,
        "torch.mps.empty_cache",
        reason="hides faults that depend on the allocator; nothing here calls it",
    ),
)

"""Known facts about the MPS backend that are no rules, each with the reason."""

from __future__ import annotations

REASONS = {
    "pytorch#152278: conv1d over 65,536 raises": (
        "open; the check of conv-65536, which macOS 15.1 and later do not reach"
    ),
    "PYTORCH_ENABLE_MPS_FALLBACK=1 does not help there": (
        "an environment variable, not a call; the error comes from inside an existing kernel"
    ),
    "alignment of is_causal": (
        "upper left in every release; only development builds before 2.5 built an (L, L) mask"
    ),
    "is_causal masks with -1e20": "harmless: it becomes -inf in float16, and no causal row is empty",
    "dropout": "the public function then composes other operators, whose rules hold",
    "buffer over maxBufferLength": "depends on the machine's memory; blocks of 256 MiB stay below it",
    "pytorch#181575: prefill kernels": (
        "new in torch 2.13, not a fault: their calls build no score matrix, so its rules do not hold"
    ),
    "backward": "composes other operators with a whole score matrix; no failure of its own",
    "bfloat16 products on M1 and M2": "slower than float16, not wrong; one report",
    "where and advanced indexing over 2^24 elements": (
        "closed upstream with no exact condition or release to state"
    ),
    "GRU": "composes other operators in every release",
    "group_norm and rms_norm": "composed of other operators before they had kernels; no failure",
    "PYTORCH_ENABLE_MPS_FALLBACK": "an environment variable; the rules list operators without a kernel",
    "PYTORCH_MPS_HIGH_WATERMARK_RATIO": "a setting of the allocator, not a call",
    "PYTORCH_MPS_LOW_WATERMARK_RATIO": "a setting of the allocator, not a call",
    "out of memory": "depends on the machine; memory is estimated before a model is loaded",
    "PYTORCH_MPS_PREFER_METAL and FAST_MATH": "settings, not calls",
    "jamiepine/voicebox#905: a graph per shape, and a hang in its compilation": (
        "one report (macOS 26, M4 Max): with growing caches the compilation for a new shape takes "
        "minutes and raises nothing; after how many shapes is not known. Attention of up to 8 rows "
        "runs in kernels without a graph if no rule forbids it; blocks and prompts have a graph per "
        "length"
    ),
    "actions/runner-images#14380: other numbers on macOS 26 than on 15": (
        "MPSGraph 6.4 and 6.5 of macOS 26 against 5.6, with torch 2.8 to 2.13, in SAM2; no operator "
        "is named. The workflow runs the tests marked mps on both systems"
    ),
    "pytorch#185663": "thread not read: it could not be found; nothing is claimed about it",
    "torch.compile": "nothing here is compiled by torch",
    "torch.mps.empty_cache": "hides faults that depend on the allocator; nothing here calls it",
}

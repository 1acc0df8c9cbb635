"""Compare attention in blocks with two of torch's forms over long sequences: peak memory, time and error.

    python benchmarks/attention_memory.py [--device cpu|cuda] [--dtype bfloat16] [--tokens N] [--batch 1]
    [--heads 16] [--key-heads 16] [--width 128] [--budget 256] [--rows 128] [--repeats 5]

blocks: torch_ref's attention with native=False and a budget in MiB; flash: torch's own kernel; naive: matmul,
softmax, matmul in the inputs' dtype. All are causal, with the same random inputs. Memory is the allocator's
peak without the inputs, but with the output, on CUDA, and the growth of the resident set on a CPU. The error
is that of `--rows` rows against float64. --tokens is 32768 on CUDA and 2048 on a CPU by default.
Exits with 1 if the blocks take more than the output and their budget (CUDA), or if their error is more than
1.5 times flash's.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from peaks import described, peak_of, seconds_of
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from torch_ref.layers.attention import AttentionPolicy, scaled_dot_product_attention

Form = Callable[[Tensor, Tensor, Tensor], Tensor]


def forms(policy: AttentionPolicy) -> dict[str, Form]:
    def blocks(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True, policy=policy)

    def flash(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)

    def naive(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        group = query.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(group, 1) if group > 1 else x for x in (key, value))
        scores = query * query.shape[-1] ** -0.5 @ key.transpose(-2, -1)
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).triu(1)
        return torch.softmax(scores.masked_fill_(later, -math.inf), -1) @ value

    return {"blocks": blocks, "flash": flash, "naive": naive}


def exact(query: Tensor, key: Tensor, value: Tensor, rows: Tensor) -> Tensor:
    """Compute the given rows in float64, head by head."""
    out, group = [], query.shape[1] // key.shape[1]
    places = torch.arange(key.shape[2], device=query.device)
    for head in range(query.shape[1]):
        scores = query[:, head, rows].double() @ key[:, head // group].double().transpose(-2, -1)
        scores *= query.shape[-1] ** -0.5
        scores.masked_fill_(places > rows[:, None], -math.inf)
        out.append(torch.softmax(scores, -1) @ value[:, head // group].double())
    return torch.stack(out, 1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--key-heads", type=int)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--budget", type=int, default=256, help="MiB")
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    tokens = args.tokens or (32768 if device == "cuda" else 2048)
    dtype, key_heads = getattr(torch, args.dtype), args.key_heads or args.heads
    print(described(device))
    shape = f"batch {args.batch}, {args.heads} heads on {key_heads}, {tokens} tokens, width {args.width}"
    print(f"{shape}, {args.dtype}, causal; blocks under {args.budget} MiB; medians of {args.repeats}")

    generator = torch.Generator(device).manual_seed(0)
    query, key, value = (
        torch.randn(args.batch, heads, tokens, args.width, generator=generator, device=device, dtype=dtype)
        for heads in (args.heads, key_heads, key_heads)
    )
    rows = torch.linspace(0, tokens - 1, min(args.rows, tokens), device=device).long()
    truth, output = exact(query, key, value, rows), query.numel() * query.itemsize
    errors, faults = dict[str, float](), []
    budget = args.budget * 2**20
    for name, form in forms(AttentionPolicy(budget_bytes=budget, native=False)).items():

        def call(form: Form = form) -> Tensor:
            return form(query, key, value)

        try:
            error = (call()[:, :, rows].double() - truth).abs()  # the first call also warms up
            peak = peak_of(call, device)
            times = sorted(seconds_of(call, device) for _ in range(args.repeats))
        except torch.OutOfMemoryError:
            print(f"{name:<7} does not fit")
            continue
        errors[name], beside = error.max().item(), peak - output
        milliseconds = [1e3 * seconds for seconds in times]
        print(
            f"{name:<7} peak {peak / 1e6:9.1f} MB over the inputs, {beside / 1e6:9.1f} MB beside the output; "
            f"{statistics.median(milliseconds):9.2f} ms ({milliseconds[0]:.2f} to {milliseconds[-1]:.2f}); "
            f"error max {errors[name]:.2e}, rms {error.square().mean().sqrt().item():.2e}",
            flush=True,
        )
        if name == "blocks" and device == "cuda" and beside > budget:
            faults.append(f"the blocks take {beside} bytes of {budget}")
    if errors["blocks"] > 1.5 * errors.get("flash", math.inf):
        faults.append(f"the blocks' error is {errors['blocks']:.2e}, flash's {errors['flash']:.2e}")
    for fault in faults:
        print(fault)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()

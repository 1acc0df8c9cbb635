"""Uniform numbers drawn on the device, bit for bit those of tts_core.nn.noise.HostNoise.

Philox 4x64-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011; the order of a block's
words is that of numpy.random.Philox.
"""

# pyright: reportInvalidTypeForm=false
# (Triton reads the kernels' annotations)

from __future__ import annotations

from torch import Tensor

from torch_ref.cuda.triton import jit, tl, triton

BLOCKS = 128  # of 8 numbers, per program


def fill_uniform(out: Tensor, seeds: Tensor, steps: Tensor, first: int, count: int) -> None:
    """Draw numbers in (0, 1) for several steps of each text, 0.5 for steps below 0.

    out: (ring, B, ...) float32.
    seeds: (B,) int64, the bits of the seed.
    steps: (B,) int64, each text's step at tick 0.
    Ticks first .. first + count - 1 are filled, each at tick % ring.
    """
    ring, texts = out.shape[:2]
    numbers = out[0, 0].numel()
    grid = count, texts, triton.cdiv(triton.cdiv(numbers, 8), BLOCKS)
    _fill_uniform[grid](out, seeds, steps, first, ring, texts, numbers, BLOCK=BLOCKS, num_warps=4)


@jit
def _fill_uniform(out, seeds, steps, first, ring, texts, numbers, BLOCK: tl.constexpr):
    tick, text = first + tl.program_id(0), tl.program_id(1)
    step = tl.load(steps + text) + tick
    block = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    zeros = tl.zeros([BLOCK], dtype=tl.uint64)
    key0 = zeros + tl.load(seeds + text).to(tl.uint64, bitcast=True)
    key1 = zeros
    c0, c1, c2 = (block + 1).to(tl.uint64), zeros, zeros
    c3 = zeros + step.to(tl.uint64, bitcast=True)
    for _ in tl.static_range(10):
        high0, low0 = tl.umulhi(c0, zeros + 0xD2E7470EE14C6C93), c0 * 0xD2E7470EE14C6C93
        high1, low1 = tl.umulhi(c2, zeros + 0xCA5A826395121157), c2 * 0xCA5A826395121157
        c0, c1, c2, c3 = high1 ^ c1 ^ key0, low1, high0 ^ c3 ^ key1, low0
        key0 += 0x9E3779B97F4A7C15
        key1 += 0xBB67AE8584CAA73B
    at = out + ((tick % ring) * texts + text).to(tl.int64) * numbers
    _put(at, block, 0, c0, step, numbers)
    _put(at, block, 1, c1, step, numbers)
    _put(at, block, 2, c2, step, numbers)
    _put(at, block, 3, c3, step, numbers)


@jit
def _put(address, block, word: tl.constexpr, bits, step, numbers):
    """The low half of a word, then the high one, 23 bits and a half of each."""
    at = block * 8 + word * 2
    low = ((bits & 0xFFFFFFFF) >> 9).to(tl.float32)
    high = (bits >> 41).to(tl.float32)
    tl.store(address + at, tl.where(step < 0, 0.5, (low + 0.5) * (1 / 8388608)), mask=at < numbers)
    tl.store(address + at + 1, tl.where(step < 0, 0.5, (high + 0.5) * (1 / 8388608)), mask=at + 1 < numbers)

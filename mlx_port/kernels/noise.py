"""Uniform numbers drawn on the device, bit for bit those of tts_core.nn.noise.HostNoise.

Philox 4x64-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011; the order of a block's
words is that of numpy.random.Philox.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from mlx_port.kernels.source import Kernel
from tts_core.nn.noise import HostNoise

GROUP = 128
WORDS = 8  # of a text: seed, step, count of numbers, and zeros, as Metal takes smaller arrays for constants

BODY = """
  const int numbers = static_cast<int>(seeds[2]), blocks = (numbers + 7) / 8;
  if (place >= seeds_shape[0] * blocks) return;
  const int text = place / blocks, block = place % blocks;
  const WORD step = seeds[8 * text + 1];
  WORD key0 = seeds[8 * text], key1 = 0;
  WORD c[4] = {static_cast<WORD>(block) + 1, 0, 0, step};
  for (int round = 0; round < 10; ++round) {
    const WORD high0 = HIGH(c[0], WORD(0xD2E7470EE14C6C93)), low0 = c[0] * WORD(0xD2E7470EE14C6C93);
    const WORD high1 = HIGH(c[2], WORD(0xCA5A826395121157)), low1 = c[2] * WORD(0xCA5A826395121157);
    c[0] = high1 ^ c[1] ^ key0;
    c[1] = low1;
    c[2] = high0 ^ c[3] ^ key1;
    c[3] = low0;
    key0 += WORD(0x9E3779B97F4A7C15);
    key1 += WORD(0xBB67AE8584CAA73B);
  }
  for (int i = 0; i < 8; ++i) {
    const int at = block * 8 + i;
    const float bits = static_cast<float>(static_cast<unsigned>(c[i / 2] >> (i % 2 ? 41 : 9)) & 0x7fffffu);
    if (at < numbers) out[text * numbers + at] = static_cast<T>((bits + 0.5f) * (1.0f / 8388608.0f));
  }
"""
KERNEL = Kernel(
    "uniform",
    ("seeds",),
    ("out",),
    cuda="""
  #define HIGH(a, b) __umul64hi(a, b)
  using WORD = unsigned long long;
  const int place = blockIdx.x * blockDim.x + threadIdx.x;"""
    + BODY,
    metal="""
  #define HIGH(a, b) metal::mulhi(a, b)
  using WORD = ulong;
  const int place = thread_position_in_grid.x;"""
    + BODY,
)


def uniform(seeds: Sequence[int], steps: Sequence[int], shape: tuple[int, ...]) -> mx.array:
    """Draw `HostNoise(seed).uniform(step, shape)` for each text. → (B, *shape) float32."""
    numbers = math.prod(shape)
    blocks = -(-numbers // 8)
    words = np.zeros((len(seeds), WORDS), np.uint64)
    words[:, 0], words[:, 1], words[:, 2] = seeds, steps, numbers
    [out] = KERNEL(
        [mx.array(words)],
        threads=len(seeds) * blocks,
        group=GROUP,
        shapes=[(len(seeds), *shape)],
        dtypes=[mx.float32],
        template=[("T", mx.float32)],
    )
    return out


def trial() -> bool:
    """Compare the kernel with the numbers of the host."""
    found = uniform([3, 2**64 - 1], [0, 2**33], (5, 7))
    expected = [HostNoise(3).uniform(0, (5, 7)), HostNoise(2**64 - 1).uniform(2**33, (5, 7))]
    return bool((np.array(found) == np.stack(expected)).all())

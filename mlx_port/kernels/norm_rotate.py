"""Norm and rotary positions of single rows: queries, keys and values of a joined product in one launch."""

from __future__ import annotations

import mlx.core as mx

from mlx_port.kernels.source import Kernel, near

GROUP = 256  # 8 heads

BODY = """
  const int rows = x_shape[0], half_width = spin_shape[2], width = 2 * half_width, heads = x_shape[1] / width;
  const int asking = query_heads[0], kept = (heads - asking) / 2;
  const int lane = place % 32, head = place / 32 % heads, row = place / (32 * heads);
  if (row >= rows) return;
  const int from = (row * heads + head) * width, table = (spin_shape[0] > 1 ? row : 0) * width;
  float sum = 0;
  for (int i = lane; i < width; i += 32) {
    const float one = static_cast<float>(x[from + i]);
    sum += one * one;
  }
  SUM_UP
  const float scale = RSQRT(sum / width + eps[0]);
  for (int i = lane; i < half_width; i += 32) {
    T a = x[from + i], b = x[from + i + half_width];
    if (head < asking + kept) {
      const float gain_a = gains[head * width + i], gain_b = gains[head * width + i + half_width];
      const float even_a = static_cast<float>(static_cast<T>(static_cast<float>(a) * scale * gain_a));
      const float even_b = static_cast<float>(static_cast<T>(static_cast<float>(b) * scale * gain_b));
      const float cosine = static_cast<float>(spin[table + i]);
      const float sine = static_cast<float>(spin[table + half_width + i]);
      a = static_cast<T>(even_a * cosine - even_b * sine);
      b = static_cast<T>(even_b * cosine + even_a * sine);
    }
    if (head < asking) {
      const int to = (row * asking + head) * width + i;
      queries[to] = a;
      queries[to + half_width] = b;
    } else {
      const int which = (head - asking) / kept, key = (head - asking) % kept;
      const int to = ((which * rows + row) * kept + key) * width + i;
      fresh[to] = a;
      fresh[to + half_width] = b;
    }
  }
"""
CUDA_SUM = "for (int step = 16; step > 0; step >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, step);"
KERNEL = Kernel(
    "norm_turn",
    ("x", "spin", "gains", "query_heads", "eps"),
    ("queries", "fresh"),
    cuda="  const int place = blockIdx.x * blockDim.x + threadIdx.x;"
    + BODY.replace("SUM_UP", CUDA_SUM).replace("RSQRT", "rsqrtf"),
    metal="  const int place = thread_position_in_grid.x;"
    + BODY.replace("SUM_UP", "sum = simd_sum(sum);").replace("RSQRT", "metal::precise::rsqrt"),
)


def norm_rotate(
    x: mx.array, spin: mx.array, gains: mx.array, heads: int, eps: float
) -> tuple[mx.array, mx.array]:
    """Normalize queries and keys, round, rotate component i with i + E/2, and lay out keys with values.

    x: (R, (H + 2 K) E).
    spin: (R or 1, 2, E/2), see mlx_port.steps.spin.
    gains: (H + K, E) float32.
    → (R, H, 1, E), (2, R, K, 1, E).
    """
    rows, width = len(x), 2 * spin.shape[-1]
    every = x.shape[1] // width
    queries, fresh = KERNEL(
        [x, spin, gains, mx.array([heads]), mx.array([eps])],
        threads=rows * every * 32,
        group=GROUP,
        shapes=[(rows, heads, 1, width), (2, rows, (every - heads) // 2, 1, width)],
        dtypes=[x.dtype, x.dtype],
        template=[("T", x.dtype)],
    )
    return queries, fresh


def trial(dtype: mx.Dtype, spin_dtype: mx.Dtype) -> bool:
    """Compare the kernel with its formula on a few numbers."""
    x = mx.arange(1.0, 33.0).reshape(2, 4, 4).astype(dtype)
    spin = mx.array([[[0.6, 0.8], [0.8, -0.6]]] * 2).astype(spin_dtype)  # H = 2, K = 1, E = 4
    gains = mx.linspace(0.5, 1.5, 12).reshape(3, 4)
    queries, fresh = norm_rotate(x.flatten(1), spin, gains, 2, 1e-5)
    normed = mx.fast.rms_norm(x[:, :3].astype(mx.float32), mx.ones(4), 1e-5) * gains
    a, b, cos, sin = normed[..., :2], normed[..., 2:], spin[:, :1], spin[:, 1:]
    rotated = mx.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    right = near(queries[:, :, 0], rotated[:, :2]) and near(fresh[0, :, :, 0], rotated[:, 2:])
    return right and near(fresh[1, :, 0, 0], x[:, 3])

"""Rotary positions of single rows: queries, keys and values from one joined product in one launch."""

from __future__ import annotations

import mlx.core as mx

from mlx_port.kernels.source import Kernel, near

GROUP = 256

BODY = """
  const int rows = x_shape[0], half_width = spin_shape[2], heads = x_shape[1] / (2 * half_width);
  const int kept = max((heads - HEADS) / 2, 1);  // key heads; where there are none, none is written
  if (place >= rows * heads * half_width) return;
  const int at = place % half_width, head = place / half_width % heads, row = place / (heads * half_width);
  const int first = PAIRS ? 2 * at : at, second = PAIRS ? first + 1 : at + half_width;
  const int from = (row * heads + head) * 2 * half_width;
  float a = static_cast<float>(x[from + first]), b = static_cast<float>(x[from + second]);
  if (head < HEADS + (heads - HEADS) / 2) {
    const int table = (spin_shape[0] > 1 ? row : 0) * 2 * half_width + at;
    const float cosine = spin[table], sine = spin[table + half_width], old = a;
    a = old * cosine - b * sine;
    b = b * cosine + old * sine;
  }
  if (head < HEADS) {
    const int to = (row * HEADS + head) * 2 * half_width;
    queries[to + first] = static_cast<T>(a);
    queries[to + second] = static_cast<T>(b);
  } else {
    const int which = (head - HEADS) / kept, key = (head - HEADS) % kept;
    const int to = ((which * rows + row) * kept + key) * 2 * half_width;
    fresh[to + first] = static_cast<T>(a);
    fresh[to + second] = static_cast<T>(b);
  }
"""
KERNEL = Kernel(
    "turn",
    ("x", "spin"),
    ("queries", "fresh"),
    cuda="  const int place = blockIdx.x * blockDim.x + threadIdx.x;" + BODY,
    metal="  const int place = thread_position_in_grid.x;" + BODY,
)


def turn(x: mx.array, spin: mx.array, heads: int, *, pairs: bool) -> tuple[mx.array, mx.array]:
    """Rotate queries and keys, and lay out keys with values.

    x: (R, (H + 2 K) E).
    spin: (R or 1, 2, E/2), see mlx_port.steps.spin.
    pairs: component 2i turns with 2i + 1, else i with i + E/2.
    → (R, H, 1, E), (2, R, K, 1, E).
    """
    rows, width = len(x), 2 * spin.shape[-1]
    kept = (x.shape[1] // width - heads) // 2
    queries, fresh = KERNEL(
        [x, spin],
        threads=x.size // 2,
        group=GROUP,
        shapes=[(rows, heads, 1, width), (2, rows, kept, 1, width)],
        dtypes=[x.dtype, x.dtype],
        template=[("T", x.dtype), ("HEADS", heads), ("PAIRS", pairs)],
    )
    return queries, fresh


def turn_queries(x: mx.array, spin: mx.array) -> mx.array:
    """Rotate queries by themselves, component i with i + E/2. (B, H E) → (B, H, 1, E)."""
    width = 2 * spin.shape[-1]
    heads = x.shape[1] // width
    queries, _ = KERNEL(
        [x, spin],
        threads=x.size // 2,
        group=GROUP,
        shapes=[(len(x), heads, 1, width), (1,)],  # no keys, but an array has a size
        dtypes=[x.dtype, x.dtype],
        template=[("T", x.dtype), ("HEADS", heads), ("PAIRS", False)],
    )
    return queries


def trial(dtype: mx.Dtype) -> bool:
    """Compare the kernel with its formula on a few numbers."""
    x = mx.arange(32.0).reshape(2, 16)
    spin = mx.array([[[0.6, 0.8], [0.8, -0.6]]] * 2)  # H = 2, K = 1, E = 4
    a, b = x[:, :2], x[:, 2:4]
    halves = mx.concatenate([a * spin[:, 0] - b * spin[:, 1], b * spin[:, 0] + a * spin[:, 1]], axis=1)
    a, b = x[:, 8:12:2], x[:, 9:12:2]
    pairs = mx.stack([a * spin[:, 0] - b * spin[:, 1], b * spin[:, 0] + a * spin[:, 1]], axis=2)
    x = x.astype(dtype)
    queries, fresh = turn(x, spin, 2, pairs=False)
    _, key = turn(x, spin, 2, pairs=True)
    right = near(queries[:, 0, 0], halves) and near(fresh[1, :, 0, 0], x[:, 12:])
    return right and near(key[0, :, 0, 0], pairs.flatten(1)) and near(turn_queries(x, spin)[:, 0, 0], halves)

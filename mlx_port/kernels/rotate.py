"""Rotary positions of single rows: queries, keys and values from one joined product in one launch."""

from __future__ import annotations

import mlx.core as mx

from mlx_port.kernels.source import Kernel, near

GROUP = 256

BODY = """
  const int rows = x_shape[0], half_width = spin_shape[2], heads = x_shape[1] / (2 * half_width);
  const int asking = query_heads[0];
  const int kept = max((heads - asking) / 2, 1);  // key heads; where there are none, none is written
  if (place >= rows * heads * half_width) return;
  const int at = place % half_width, head = place / half_width % heads, row = place / (heads * half_width);
  const int first = PAIRS ? 2 * at : at, second = PAIRS ? first + 1 : at + half_width;
  const int from = (row * heads + head) * 2 * half_width;
  float a = static_cast<float>(x[from + first]), b = static_cast<float>(x[from + second]);
  if (head < asking + (heads - asking) / 2) {
    const int table = (spin_shape[0] > 1 ? row : 0) * 2 * half_width + at;
    const float cosine = spin[table], sine = spin[table + half_width], old = a;
    a = old * cosine - b * sine;
    b = b * cosine + old * sine;
  }
  if (head < asking) {
    const int to = (row * asking + head) * 2 * half_width;
    queries[to + first] = static_cast<T>(a);
    queries[to + second] = static_cast<T>(b);
  } else {
    const int which = (head - asking) / kept, key = (head - asking) % kept;
    const int to = ((which * rows + row) * kept + key) * 2 * half_width;
    fresh[to + first] = static_cast<T>(a);
    fresh[to + second] = static_cast<T>(b);
  }
"""
KERNEL = Kernel(
    "turn",
    ("x", "spin", "query_heads"),
    ("queries", "fresh"),
    cuda="  const int place = blockIdx.x * blockDim.x + threadIdx.x;" + BODY,
    metal="  const int place = thread_position_in_grid.x;" + BODY,
)


def rotate_heads(x: mx.array, spin: mx.array, heads: int, *, pairs: bool) -> tuple[mx.array, mx.array]:
    """Rotate queries and keys, and lay out keys with values.

    x: (R, (H + 2 K) E).
    spin: (R or 1, 2, E/2), see mlx_port.steps.spin.
    pairs: component 2i turns with 2i + 1, else i with i + E/2.
    → (R, H, 1, E), (2, R, K, 1, E).
    """
    rows, width = len(x), 2 * spin.shape[-1]
    kv_heads = (x.shape[1] // width - heads) // 2
    queries, fresh = KERNEL(
        [x, spin, mx.array([heads])],
        threads=x.size // 2,
        group=GROUP,
        shapes=[(rows, heads, 1, width), (2, rows, kv_heads, 1, width)],
        dtypes=[x.dtype, x.dtype],
        template=[("T", x.dtype), ("PAIRS", pairs)],
    )
    return queries, fresh


def rotate_queries(x: mx.array, spin: mx.array) -> mx.array:
    """Rotate queries by themselves, component i with i + E/2. (B, H E) → (B, H, 1, E)."""
    width = 2 * spin.shape[-1]
    heads = x.shape[1] // width
    queries, _ = KERNEL(
        [x, spin, mx.array([heads])],
        threads=x.size // 2,
        group=GROUP,
        shapes=[(len(x), heads, 1, width), (1,)],  # no keys, but an array has a size
        dtypes=[x.dtype, x.dtype],
        template=[("T", x.dtype), ("PAIRS", False)],
    )
    return queries


def trial(dtype: mx.Dtype, pairs: bool) -> bool:
    """Compare the kernel with its formula on a few numbers."""
    x = mx.arange(32.0).reshape(2, 16)
    spin = mx.array([[[0.6, 0.8], [0.8, -0.6]]] * 2)  # H = 2, K = 1, E = 4
    both = x[:, :12].reshape(2, 3, 4)
    cos, sin = spin[:, :1], spin[:, 1:]
    if pairs:
        a, b = both[..., ::2], both[..., 1::2]
        rotated = mx.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).flatten(2)
    else:
        a, b = both[..., :2], both[..., 2:]
        rotated = mx.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    x = x.astype(dtype)
    queries, fresh = rotate_heads(x, spin, 2, pairs=pairs)
    right = near(queries[:, :, 0], rotated[:, :2]) and near(fresh[0, :, :, 0], rotated[:, 2:])
    if not pairs:
        right = right and near(rotate_queries(x[:, :8], spin)[:, :, 0], rotated[:, :2])
    return right and near(fresh[1, :, 0, 0], x[:, 12:])

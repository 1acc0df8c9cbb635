"""Residual sum and RMS norm of rows in one launch."""

from __future__ import annotations

import mlx.core as mx

from mlx_port.kernels.source import Kernel, near

GROUP = 512

CUDA = """
  const int row = blockIdx.x, width = x_shape[1];
  const bool is_first = row < added_shape[0];
  const int64_t start = static_cast<int64_t>(row) * width;
  __shared__ float parts[32];
  float sum = 0;
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    const float more = is_first ? static_cast<float>(added[start + i]) : static_cast<float>(rest[i]);
    const T both = static_cast<T>(static_cast<float>(x[start + i]) + more);
    total[start + i] = both;
    sum += static_cast<float>(both) * static_cast<float>(both);
  }
  for (int step = 16; step > 0; step >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = sum;
  __syncthreads();
  sum = 0;
  for (int i = 0; i < static_cast<int>(blockDim.x) >> 5; ++i) sum += parts[i];
  const float scale = rsqrtf(sum / width + eps[0]);
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    const W even = static_cast<W>(static_cast<float>(total[start + i]) * scale);
    normed[start + i] = static_cast<O>(static_cast<float>(weight[i]) * static_cast<float>(even));
  }
"""
METAL = """
  const uint row = threadgroup_position_in_grid.x, width = x_shape[1], threads = threads_per_threadgroup.x;
  const bool is_first = int(row) < added_shape[0];
  const uint thread_at = thread_position_in_threadgroup.x;
  const size_t start = size_t(row) * width;
  threadgroup float parts[32];
  float sum = 0;
  for (uint i = thread_at; i < width; i += threads) {
    const float more = is_first ? static_cast<float>(added[start + i]) : static_cast<float>(rest[i]);
    const T both = static_cast<T>(static_cast<float>(x[start + i]) + more);
    total[start + i] = both;
    sum += static_cast<float>(both) * static_cast<float>(both);
  }
  sum = simd_sum(sum);
  if (thread_index_in_simdgroup == 0) parts[simdgroup_index_in_threadgroup] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  sum = 0;
  for (uint i = 0; i < threads / 32; ++i) sum += parts[i];
  const float scale = metal::precise::rsqrt(sum / width + eps[0]);
  for (uint i = thread_at; i < width; i += threads) {
    const W even = static_cast<W>(static_cast<float>(total[start + i]) * scale);
    normed[start + i] = static_cast<O>(static_cast<float>(weight[i]) * static_cast<float>(even));
  }
"""
KERNEL = Kernel(
    "add_norm", ("x", "added", "rest", "weight", "eps"), ("total", "normed"), cuda=CUDA, metal=METAL
)


def add_norm(
    x: mx.array, added: mx.array, rest: mx.array | None, weight: mx.array, eps: float, dtype: mx.Dtype
) -> tuple[mx.array, mx.array]:
    """Return the sum, in x's dtype, and its norm: rounded to the weight's dtype, then times it to `dtype`.

    x: (R, D).
    added: (R, D), or with `rest` (B, D) for the first B rows.
    rest: (D,), added to the others.
    weight: (D,).
    """
    total, normed = KERNEL(
        [x, added, added if rest is None else rest, weight, mx.array([eps])],
        threads=GROUP * len(x),
        group=GROUP,
        shapes=[x.shape, x.shape],
        dtypes=[x.dtype, dtype],
        template=[("T", x.dtype), ("W", weight.dtype), ("O", dtype)],
    )
    return total, normed


def trial(dtype: mx.Dtype, added_dtype: mx.Dtype, weight_dtype: mx.Dtype, out: mx.Dtype) -> bool:
    """Compare the kernel with its formula, with and without `rest`, for inputs of these dtypes."""
    x, added = mx.arange(-9.0, 9.0).reshape(2, 9).astype(dtype), mx.full((2, 9), 0.5, added_dtype)
    rest, weight = mx.full(9, 2.0, added_dtype), mx.linspace(0.5, 1.5, 9).astype(weight_dtype)

    def right(first: int) -> bool:
        total, normed = add_norm(x, added[:first], None if first == 2 else rest, weight, 1e-5, out)
        expected = x + mx.array([[0.5], [0.5 if first == 2 else 2.0]], dtype)
        return near(total, expected) and near(normed, mx.fast.rms_norm(expected, weight, 1e-5))

    return right(1) and right(2)

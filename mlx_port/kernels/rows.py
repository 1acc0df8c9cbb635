"""Product of a few rows with a weight: each number of the weight is read once for all rows.

32 threads compute a column, or several of a quantized weight, of all rows in float32, in an order that
depends on neither the number of rows nor their content.
"""

from __future__ import annotations

import mlx.core as mx

from mlx_port.kernels.source import Kernel, near

MOST_ROWS = 4
GROUP = 128
LEAST = 8  # elements: MLX gives Metal smaller arrays as constants, which no device pointer takes
WIDE = 8192  # columns from which 32 threads compute more of them

CUDA = """
  constexpr int V = 16 / sizeof(T);
  const int N = w_shape[0], K = w_shape[1], lane = threadIdx.x & 31;
  const int column = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
  if (column >= N) return;
  const T* line = w + static_cast<int64_t>(column) * K;
  float sums[ROWS] = {};
  #pragma unroll 8
  for (int k = lane * V; k < K; k += 32 * V) {
    const uint4 part = __ldcs(reinterpret_cast<const uint4*>(line + k));
    for (int r = 0; r < ROWS; ++r) {
      const uint4 row = *reinterpret_cast<const uint4*>(x + r * K + k);
      for (int i = 0; i < V; ++i)
        sums[r] = fmaf(static_cast<float>(reinterpret_cast<const T*>(&part)[i]),
                       static_cast<float>(reinterpret_cast<const T*>(&row)[i]), sums[r]);
    }
  }
  for (int r = 0; r < ROWS; ++r) {
    for (int step = 16; step > 0; step >>= 1) sums[r] += __shfl_xor_sync(0xffffffffu, sums[r], step);
    if (lane == 0) out[r * N + column] = static_cast<T>(sums[r]);
  }
"""
METAL = """
  constexpr int V = 16 / sizeof(T);
  const int N = w_shape[0], K = w_shape[1], lane = thread_index_in_simdgroup;
  const int column = threadgroup_position_in_grid.x * (threads_per_threadgroup.x / 32)
                     + simdgroup_index_in_threadgroup;
  if (column >= N) return;
  const device T* line = w + size_t(column) * K;
  float sums[ROWS] = {};
  for (int k = lane * V; k < K; k += 32 * V) {
    T part[V];
    for (int i = 0; i < V; ++i) part[i] = line[k + i];
    for (int r = 0; r < ROWS; ++r)
      for (int i = 0; i < V; ++i)
        sums[r] = fma(static_cast<float>(part[i]), static_cast<float>(x[r * K + k + i]), sums[r]);
  }
  for (int r = 0; r < ROWS; ++r) {
    const float sum = simd_sum(sums[r]);
    if (lane == 0) out[r * N + column] = static_cast<T>(sum);
  }
"""
KERNEL = Kernel("rows", ("x", "w"), ("out",), cuda=CUDA, metal=METAL)


QUANTIZED = """
  constexpr int P = 32 / BITS;  // codes in a word, 4 P in 16 bytes
  constexpr unsigned MASK = (1u << BITS) - 1;
  struct alignas(P * sizeof(T) < 16 ? P * sizeof(T) : 16) Pack { T v[P]; };
  const int N = w_shape[0], words = w_shape[1], K = words * P, groups = scales_shape[1];
  if (first >= N) return;
  float sums[ROWS][COLUMNS] = {};
  for (int k = lane * 4 * P; k < K; k += 128 * P) {
    alignas(16) unsigned part[COLUMNS][4];
    float scale[COLUMNS], bias[COLUMNS], dots[ROWS][COLUMNS] = {}, totals[ROWS] = {};
    for (int j = 0; j < COLUMNS; ++j) {
      const int column = first + j < N ? first + j : N - 1;
      *reinterpret_cast<HERE uint4*>(part[j]) =
          *reinterpret_cast<const DEVICE uint4*>(w + SIZE(column) * words + k / P);
      scale[j] = static_cast<float>(scales[SIZE(column) * groups + k / SPAN]);
      bias[j] = static_cast<float>(biases[SIZE(column) * groups + k / SPAN]);
    }
    for (int i = 0; i < 4; ++i) {
      float values[ROWS][P];
      for (int r = 0; r < ROWS; ++r) {
        Pack row;
        COPY(row, x + r * K + k + i * P);
        for (int at = 0; at < P; ++at) {
          values[r][at] = static_cast<float>(row.v[at]);
          totals[r] += values[r][at];
        }
      }
      for (int j = 0; j < COLUMNS; ++j)
        for (int at = 0; at < P; ++at) {
          const float code = FLOAT(0x4B000000u | ((part[j][i] >> (at * BITS)) & MASK)) - 8388608.0f;  // exact
          for (int r = 0; r < ROWS; ++r) dots[r][j] = fma(code, values[r][at], dots[r][j]);
        }
    }
    for (int r = 0; r < ROWS; ++r)
      for (int j = 0; j < COLUMNS; ++j) sums[r][j] += scale[j] * dots[r][j] + bias[j] * totals[r];
  }
  for (int r = 0; r < ROWS; ++r)
    for (int j = 0; j < COLUMNS; ++j) {
      const float sum = SUM(sums[r][j]);
      if (lane == 0 && first + j < N) out[r * N + first + j] = static_cast<T>(sum);
    }
"""
QUANTIZED_KERNEL = Kernel(
    "quantized_rows",
    ("x", "w", "scales", "biases"),
    ("out",),
    cuda="""
  #define DEVICE
  #define HERE
  #define SIZE(a) static_cast<int64_t>(a)
  #define FLOAT(a) __uint_as_float(a)
  #define COPY(to, from) to = *reinterpret_cast<const Pack*>(from)
  auto total_of = [](float a) {
    for (int step = 16; step > 0; step >>= 1) a += __shfl_xor_sync(0xffffffffu, a, step);
    return a;
  };
  #define SUM(a) total_of(a)
  const int lane = threadIdx.x & 31;
  const int first = (blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5)) * COLUMNS;"""
    + QUANTIZED,
    metal="""
  #define DEVICE device
  #define HERE thread
  #define SIZE(a) size_t(a)
  #define FLOAT(a) as_type<float>(a)
  #define COPY(to, from) for (int n = 0; n < P; ++n) to.v[n] = (from)[n]
  #define SUM(a) simd_sum(a)
  const int lane = thread_index_in_simdgroup;
  const int first = (threadgroup_position_in_grid.x * (threads_per_threadgroup.x / 32)
                     + simdgroup_index_in_threadgroup) * COLUMNS;"""
    + QUANTIZED,
)


def takes(weight: mx.array) -> bool:
    """Return True if its lines are whole vectors of 16 bytes, and Metal does not take it for a constant."""
    return weight.shape[1] * weight.dtype.size % 16 == 0 and weight.size >= LEAST


def product(x: mx.array, weight: mx.array) -> mx.array:
    """Compute x weight^T. (R, K), (N, K) of one dtype → (R, N), R at most MOST_ROWS."""
    rows, columns = len(x), len(weight)
    groups = -(-columns // (GROUP // 32))
    [out] = KERNEL(
        [x, weight],
        threads=groups * GROUP,
        group=GROUP,
        shapes=[(rows, columns)],
        dtypes=[x.dtype],
        template=[("T", x.dtype), ("ROWS", rows)],
    )
    return out


def takes_quantized(bits: int, group_size: int, mode: str, weight: mx.array) -> bool:
    """Return True for whole vectors of 16 bytes, each in one group. weight: (N, words)."""
    fits = weight.shape[1] % 4 == 0 and weight.size >= LEAST
    return mode == "affine" and bits in (4, 8) and group_size % 32 == 0 and fits


def quantized_product(
    x: mx.array, weight: mx.array, scales: mx.array, biases: mx.array, *, bits: int, group_size: int
) -> mx.array:
    """Compute x weight^T of an affine quantization. (R, K), (N, K bits / 32) → (R, N), R as for `product`."""
    rows, count = len(x), len(weight)
    columns = 4 if count >= WIDE else 2
    groups = -(-count // (columns * GROUP // 32))
    [out] = QUANTIZED_KERNEL(
        [x, weight, scales, biases],
        threads=groups * GROUP,
        group=GROUP,
        shapes=[(rows, count)],
        dtypes=[x.dtype],
        template=[("T", x.dtype), ("ROWS", rows), ("COLUMNS", columns), ("BITS", bits), ("SPAN", group_size)],
    )
    return out


def trial(dtype: mx.Dtype) -> bool:
    """Compare the kernel with MLX's product, for every number of rows."""
    x, weight = _numbers(dtype)
    return all(near(product(x[:rows], weight), x[:rows] @ weight.T) for rows in range(2, MOST_ROWS + 1))


def quantized_trial(dtype: mx.Dtype, bits: int, group_size: int, columns: int) -> bool:
    """Compare the kernel with the product of what the codes stand for, for every number of rows.

    columns: of the weight; from WIDE on 32 threads compute more of them.
    """
    x, weight = _numbers(dtype, WIDE if columns >= WIDE else 8)
    parts = mx.quantize(weight, group_size, bits)
    whole = mx.dequantize(*parts, group_size, bits)

    def right(rows: int) -> bool:
        found = quantized_product(x[:rows], *parts, bits=bits, group_size=group_size)
        return near(found, x[:rows] @ whole.T)

    return all(right(rows) for rows in range(2, MOST_ROWS + 1))


def _numbers(dtype: mx.Dtype, columns: int = 8) -> tuple[mx.array, mx.array]:
    x = mx.linspace(-1, 1, MOST_ROWS * 512).reshape(MOST_ROWS, 512)
    weight = mx.linspace(-0.1, 0.1, columns * 512).reshape(columns, 512)
    return x.astype(dtype), weight.astype(dtype)

// The part of the Metal Shading Language that the kernels use, in clang's C++14.
// With SPACES an address space is part of a type, as in Metal: for a check of the text, which does not run.
// Without it a text runs on a CPU; run.cpp has the threads.
#pragma once
#include <stddef.h>
#include <stdint.h>

using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned int;
using ulong = unsigned long;
using half = _Float16;
using bfloat = __bf16;
using float16_t = half;
using bfloat16_t = bfloat;
using uint2 = uint __attribute__((ext_vector_type(2)));
using uint3 = uint __attribute__((ext_vector_type(3)));
using uint4 = uint __attribute__((ext_vector_type(4)));
using float2 = float __attribute__((ext_vector_type(2)));
using float4 = float __attribute__((ext_vector_type(4)));

struct At {  // one thread's place, under the names of Metal's attributes
  uint3 thread_position_in_grid, thread_position_in_threadgroup, threadgroup_position_in_grid;
  uint3 threads_per_threadgroup, threads_per_grid, threadgroups_per_grid;
  uint thread_index_in_threadgroup, simdgroup_index_in_threadgroup, thread_index_in_simdgroup;
  uint simdgroups_per_threadgroup, threads_per_simdgroup;
};
void kernel_of(const At& at, char* const* buffers);  // each text's program defines it
void meet_group();
float sum_of_simdgroup(float x);

namespace metal {
enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
template <class To, class From>
inline To as_type(From x) {
  static_assert(sizeof(To) == sizeof(From), "as_type changes no size");
  To y;
  __builtin_memcpy(&y, &x, sizeof y);
  return y;
}
template <class T> inline T max(T a, T b) { return a < b ? b : a; }
template <class T> inline T min(T a, T b) { return b < a ? b : a; }
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
namespace precise { using metal::rsqrt; }
inline uint mulhi(uint a, uint b) { return static_cast<uint>(static_cast<ulong>(a) * b >> 32); }
inline ulong mulhi(ulong a, ulong b) {
  return static_cast<ulong>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline float simd_sum(float x) { return sum_of_simdgroup(x); }
inline void threadgroup_barrier(mem_flags) { meet_group(); }
}  // namespace metal
using namespace metal;

#define thread
#ifdef SPACES
#define device __attribute__((address_space(1)))
#define constant __attribute__((address_space(2)))
#define threadgroup static __attribute__((address_space(3)))
#else
#define device
#define constant
#define threadgroup static __attribute__((section("threadgroup_memory"), used))
#endif

// Metal copies a structure out of any address space; C++ has a constructor for its own only.
template <class T>
inline T copied(const device T* from) {
#ifdef SPACES
  T x;
  for (size_t i = 0; i < sizeof x; ++i)
    reinterpret_cast<char*>(&x)[i] = reinterpret_cast<const device char*>(from)[i];
  return x;
#else
  return *from;
#endif
}

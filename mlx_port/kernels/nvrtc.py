"""CUDA kernels compiled without MLX's headers, by the NVRTC that MLX has loaded, in a tenth of the time.

`mx.fast.cuda_kernel` puts MLX's device headers before every kernel and keeps nothing on disk, so each process
would compile each kernel for more than a second. These kernels need none of them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache

import mlx.core as mx

NVRTC = "libnvrtc.so.{}"
MAJORS = (13, 12)  # versions that MLX is built with
TYPES = {
    mx.float32: "float",
    mx.float16: "half16",
    mx.bfloat16: "bfloat16",
    mx.int32: "int",
    mx.uint32: "unsigned",
    mx.uint64: "unsigned long long",
}
# both round to the nearest, ties to even, as every cast of MLX does
HEADER = """
using int64_t = long long;
struct half16 {
  unsigned short bits;
  half16() = default;
  __device__ explicit half16(float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x)); }
  __device__ operator float() const {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
  }
};
struct bfloat16 {
  unsigned short bits;
  bfloat16() = default;
  __device__ explicit bfloat16(float x) {
    const unsigned whole = __float_as_uint(x);
    bits = x != x ? 0x7fff : (whole + 0x7fff + (whole >> 16 & 1)) >> 16;
  }
  __device__ operator float() const { return __uint_as_float(static_cast<unsigned>(bits) << 16); }
};
"""


def text(
    name: str,
    body: str,
    inputs: Sequence[tuple[str, mx.Dtype, int]],
    outputs: Sequence[tuple[str, mx.Dtype]],
    template: Sequence[tuple[str, int | bool | mx.Dtype]],
) -> str:
    """Write a whole kernel: inputs (name, dtype, dimensions), outputs, then all sizes of the inputs.

    template: names that the body finds as types or constants.
    """
    arrays = [f"const {TYPES[dtype]}* __restrict__ {array}" for array, dtype, _ in inputs]
    arrays += [f"{TYPES[dtype]}* {array}" for array, dtype in outputs]
    sizes, shapes = list[str](), list[str]()
    for array, _, dimensions in inputs:
        own = [f"{array}_size{at}" for at in range(dimensions)]
        sizes += [f"const int {item}" for item in own]
        shapes += [f"  const int {array}_shape[] = {{{', '.join(own)}}};"]
    head = ",\n    ".join((*arrays, *sizes))
    constants = [_constant(*item) for item in template]
    return "\n".join(
        (HEADER, f'extern "C" __global__ void {name}(\n    {head}) {{', *shapes, *constants, body, "}")
    )


def _constant(name: str, value: int | bool | mx.Dtype) -> str:
    if isinstance(value, mx.Dtype):
        return f"  using {name} = {TYPES[value]};"
    return f"  constexpr {'bool' if isinstance(value, bool) else 'int'} {name} = {str(value).lower()};"


def compiled(source: str) -> bytes:
    """Compile CUDA source for MLX's default device. Returns its machine code (cubin).

    Raises RuntimeError with the compiler's message, or if there is no NVRTC.
    """
    return compile_for(source, str(mx.device_info().get("architecture")))


def compile_for(source: str, architecture: str) -> bytes:
    """Compile a text for GPUs of an architecture, such as sm_90. Raises RuntimeError."""
    nvrtc, program = _library(), ctypes.c_void_p()
    made = nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), None, 0, None, None)
    _check(made, "nvrtcCreateProgram")
    try:
        words = (f"--gpu-architecture={architecture}", "--std=c++17")
        options = (ctypes.c_char_p * len(words))(*map(str.encode, words))
        failed = nvrtc.nvrtcCompileProgram(program, len(words), options)
        if failed:
            said = _read(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
            raise RuntimeError(f"NVRTC error {failed}: {said.rstrip(bytes(1)).decode(errors='replace')}")
        return _read(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


@cache
def _library() -> ctypes.CDLL:
    for major in MAJORS:
        try:
            return ctypes.CDLL(NVRTC.format(major))  # found by its name, as MLX has loaded it
        except OSError:
            continue
    raise RuntimeError(f"no {NVRTC.format(MAJORS[0])}, which MLX's CUDA backend comes with")


def _check(status: int, call: str) -> None:
    if status:
        raise RuntimeError(f"{call}: error {status}")


def _read(program: ctypes.c_void_p, size_of: Callable[..., int], read: Callable[..., int]) -> bytes:
    size = ctypes.c_size_t()
    _check(size_of(program, ctypes.byref(size)), "NVRTC: size")
    content = ctypes.create_string_buffer(size.value)
    _check(read(program, content), "NVRTC: content")
    return content.raw
